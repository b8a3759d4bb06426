"""Training: pure losses, objectives over data sets, one loop; hard negatives and LoRA beside it."""

from munjang.training import losses, objectives
from munjang.training.loop import train
from munjang.training.lora import LoraSettings
from munjang.training.negatives import MiningReport, NegativeMining, mine_negatives
from munjang.training.run import Best, Task, TrainingResult
from munjang.training.settings import TrainingSettings

__all__ = [
    "Best",
    "LoraSettings",
    "MiningReport",
    "NegativeMining",
    "Task",
    "TrainingResult",
    "TrainingSettings",
    "losses",
    "mine_negatives",
    "objectives",
    "train",
]
