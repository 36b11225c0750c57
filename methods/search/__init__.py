"""Methods that search hyperparameters over a federation."""
