"""Constants, where older programs import them from."""


class Mode:
    """What a data set is read for."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"
