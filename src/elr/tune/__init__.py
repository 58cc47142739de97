"""``elr tune``: hyperparameters chosen on noisy validation, by Optuna, in any number of processes on one folder."""
