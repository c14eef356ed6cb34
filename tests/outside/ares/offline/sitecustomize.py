"""Makes every Python that finds this on its path import ARES without its network: the page starts some of its own."""

import offline_ares  # noqa: F401
