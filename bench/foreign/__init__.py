"""The common workload on other durable runtimes, in an environment of their own.

Each module here is a program: it says `ready`, then for each number that it reads it does that many
runs and says `done`. It imports nothing of the project but the workload's texts.
"""
