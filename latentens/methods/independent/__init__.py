"""What methods for voters who err independently given the label share."""
