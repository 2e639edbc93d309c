class ColumnPlan:
    def __init__(self, graph): pass
