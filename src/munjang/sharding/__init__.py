"""Folders of shards -> folders of vectors, or an index, by several processes or machines.

`encode_shards` cuts the work at the files: a team of workers, each with the model, takes one shard after another. One
coordinator gives the work out and alone publishes what comes back. So it does not matter who encoded a shard, how
often it was tried, or when the job was killed: a shard is done once, and its bytes are the same.
"""

from munjang.sharding.options import ModelSource, Reading, ShardOptions
from munjang.sharding.progress import JobProgress
from munjang.sharding.results import FailedShard, ShardResult
from munjang.sharding.running import encode_shards

__all__ = ["FailedShard", "JobProgress", "ModelSource", "Reading", "ShardOptions", "ShardResult", "encode_shards"]
