"""The common workload as an app: one agent, one write tool, and a model in this process.

Model and tool answer at once (or after the time that the run's input says), so what is measured is
the runtime. Both stand behind the ports that the real ones use.
"""
