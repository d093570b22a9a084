"""Who somebody is and what they may do: the one place that every verb of every door asks."""
