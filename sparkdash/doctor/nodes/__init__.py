"""The doctor's checks of several boxes: each node, and how it pairs with this box.

Rule: nothing is changed on any box, and a silent box hides no finding about the others.
"""
