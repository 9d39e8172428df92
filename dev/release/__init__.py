"""What is given to others: sdist and wheel, and archives that each released format has written."""
