"""Constants, where older programs import them from."""


class Mode:
    """The purposes for which a data set is read."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"
