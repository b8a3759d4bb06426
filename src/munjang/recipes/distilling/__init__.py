"""Distillation: a student learns from teachers; stage by stage, each of which a killed run need not repeat.

options          Teacher, Source, DistillOptions, DistillResult
defaults         the numbers, by the size of the student
sources          files, names and examples -> texts with weights
teachers         teachers and student, loaded; widths compared before anything is computed
teacher_vectors  the cache of teacher vectors, shared by runs
targets          stage `teacher`: vectors or scores, as files that training maps
making           stage `student`
negatives        stage `negatives`, for cross-encoders that teach
taught           sources and targets -> tasks
measuring        stage `measure`
running          the call `munjang.recipes.distill`
record, report   result.json, the card, index.html
"""
