"""A pool in virtual time: who would run when, by the rules of jobs.fairness or by others to compare them with.

`scenario` says what there is to simulate and `reading` reads it from TOML; `arrivals` makes the jobs, `orders` decides
who is next, `pool` runs them and keeps the `record`, `figures` judges it, `table` and `picture` show it. Nothing here
knows the database or a clock.
"""
