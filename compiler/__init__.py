"""From a model file to a microcode image: frontends, graph, passes, placement, schedule, encoder."""
