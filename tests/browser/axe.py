"""The rules of accessibility, as axe-core checks them."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe

from tests.browser.driver import Visit


def serious_violations(visit: Visit) -> list[str]:
    """Findings of axe-core, of serious and critical impact."""
    found = Axe().run(visit.page).response["violations"]
    return [
        f"{violation['id']}: {violation['help']}: {[node['html'][:160] for node in violation['nodes']][:3]}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
    ]
