"""Run with `python3 -m unittest`."""

import unittest

from temperature import to_celsius


class ToCelsius(unittest.TestCase):
    """Three points that everybody knows."""

    def test_known_points(self) -> None:
        """Freezing, boiling, and where the scales meet."""
        self.assertAlmostEqual(to_celsius(32), 0)
        self.assertAlmostEqual(to_celsius(212), 100)
        self.assertAlmostEqual(to_celsius(-40), -40)


if __name__ == "__main__":
    unittest.main()
