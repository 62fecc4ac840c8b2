KIN: list[dict[str, object]] = []
