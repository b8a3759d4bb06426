"""Jobs over texts and vectors: one call each, exported by `munjang` itself.

    cluster            texts -> groups, with representatives and keywords
    paraphrases        texts -> pairs that mean the same, groups of near duplicates
    communities        vectors -> groups about a central row
    neighbours         vectors -> pairs of rows that are alike: what mining and communities stand on

Modules and functions share names (`munjang.tasks.cluster.cluster`), so nothing is exported here.
"""
