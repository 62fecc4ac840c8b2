"""No spelling, name or redirect brings a connection to an address that is not public."""

import pytest

from scraper.egress import EgressGuard
from scraper.outcomes import FetchOutcome
from tests.scraper.fetch_kin import HELLO, redirect
from tests.scraper.raw_server import RawServer
from tests.scraper.test_egress import Answers, answering
from tests.scraper.test_fetcher import fetch, order

HIGH_PORTS = ["1024-65535"]
"""Open in these tests, so that it is the address which is refused and not the port."""

BLOCKED = """http://127.0.0.1:{port}/ http://127.1:{port}/ http://127.0.1:{port}/ http://0x7f000001:{port}/
http://0x7F.1:{port}/ http://0x7f.0x0.0x0.0x1:{port}/ http://0177.0.0.1:{port}/ http://017700000001:{port}/
http://0177.1:{port}/ http://00177.0.0.01:{port}/ http://2130706433:{port}/ http://0x07f000001:{port}/
http://127.0.0.1.:{port}/ http://2130706433.:{port}/ http://127.255.255.254:{port}/ http://localhost:{port}/
http://LOCALHOST.:{port}/ http://a.localhost:{port}/ http://loc\u00adalhost:{port}/ http://\uff4c\uff4fcalhost:{port}/
http://\u24db\u24de\u24d2alhost:{port}/ http://localhost\u3002:{port}/ http://0.0.0.0:{port}/ http://0:{port}/
http://0x0:{port}/ http://00.0.0.0:{port}/ http://[::1]:{port}/ http://[0:0:0:0:0:0:0:1]:{port}/ http://[::]:{port}/
http://[::ffff:127.0.0.1]:{port}/ http://[::FFFF:7F00:1]:{port}/ http://[0:0:0:0:0:ffff:127.0.0.1]:{port}/
http://[::127.0.0.1]:{port}/ http://[::ffff:0:127.0.0.1]:{port}/ http://[64:ff9b::7f00:1]:{port}/
http://[64:ff9b:1::7f00:1]:{port}/ http://[2002:7f00:1::]:{port}/ http://[2001:0:0:0:0:0:80ff:fffe]:{port}/
http://[fe80::5efe:7f00:1]:{port}/ http://[2606:4700::5efe:127.0.0.1]:{port}/ http://[::ffff:169.254.169.254]:{port}/
http://\uff11\uff12\uff17.0.0.1:{port}/ http://\u2460\u2461\u2466.0.0.1:{port}/ http://127\u30020\uff0e0\uff611:{port}/
http://127.0.0.1\u3002:{port}/ http://127.0.\u00ad0.1:{port}/ https://127.0.0.1:{port}/ https://[::1]:{port}/
http://inside.example:{port}/ http://127.0.0.1.nip.example:{port}/""".replace("\n", " ").split(" ")

NEITHER_SEEN_NOR_SENT = """http://127.0.0.1%2e:{port}/ http://%6c%6fcalhost:{port}/ http://%31%32%37.0.0.1:{port}/
http://%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1:{port}/ http://[::1%25lo]:{port}/ http://1.1.1.1@127.0.0.1:{port}/
http://10.0.0.1\\@127.0.0.1:{port}/ http://127.0.0.1:{port}\\@1.1.1.1/ http://127.0.0.256:{port}/
http://127.0.0.0.1:{port}/ http://127.0.0.08:{port}/ http://1.1.1.1\u2028@127.0.0.1:{port}/
http://[127.0.0.1]:{port}/ http://[::127.0.0.1.]:{port}/ http://127.0.0.1\uff05:{port}/""".replace("\n", " ").split(" ")


@pytest.mark.parametrize("url", BLOCKED, ids=ascii)
def test_no_spelling_of_a_private_address_is_connected_to(url: str) -> None:
    with RawServer([{"send": HELLO}]) as server, RawServer([]) as hop:
        target = url.format(port=server.port)
        outcome, redirected = fetch_and_redirect(target, hop)
        assert (outcome.error_code, outcome.request_sent) == ("blocked_target", False)
        assert redirected.error_code == "blocked_target"
        assert redirected.redirects == [{"url": hop.url, "status": 302}]
        assert hop.connections == 1
    assert server.connections == 0
    assert "127.0.0" not in outcome.error_detail + redirected.error_detail


@pytest.mark.parametrize("url", NEITHER_SEEN_NOR_SENT, ids=ascii)
def test_a_spelling_that_is_no_url_is_connected_to_by_nobody(url: str) -> None:
    with RawServer([{"send": HELLO}]) as server, RawServer([]) as hop:
        outcome, redirected = fetch_and_redirect(url.format(port=server.port), hop)
        assert (outcome.error_code, outcome.request_sent) == ("invalid_request", False)
        # A Location is read as browsers do, escapes and backslashes included, and then checked like any other.
        assert redirected.error_code in ("bad_redirect", "blocked_target")
    assert server.connections == 0


def fetch_and_redirect(target: str, hop: RawServer) -> tuple[FetchOutcome, FetchOutcome]:
    """What becomes of `target` as a job's URL, and as the Location of an answer from `hop`."""
    hop.steps = [{"send": redirect(target.encode().decode("latin-1"))}]
    inside = answering("127.0.0.1")
    return (
        fetch(order(target), egress=EgressGuard(resolver=inside, ports=HIGH_PORTS)),
        fetch(order(hop.url), egress=EgressGuard([hop.allowed], inside, ports=HIGH_PORTS)),
    )


def test_a_name_that_turns_private_gains_nothing() -> None:
    """127.0.0.2 stands for a public address. The name has it when first asked for, and 127.0.0.1 ever after."""
    public = RawServer([{"send": redirect("/SELF")}], address="127.0.0.2")
    inside = RawServer([{"send": HELLO}], port=public.port)
    with public, inside:
        url = f"http://name.example:{public.port}/case"
        once = Answers([["127.0.0.2"], ["127.0.0.1"]])
        guard = EgressGuard(["127.0.0.2"], resolver=once, ports=HIGH_PORTS)
        fetch(order(url, follow_redirects=False), egress=guard)
        assert (once.calls, public.connections) == (1, 1)
        again = Answers([["127.0.0.2"], ["127.0.0.1"]])
        outcome = fetch(order(url), egress=EgressGuard(["127.0.0.2"], resolver=again, ports=HIGH_PORTS))
        assert (again.calls, public.connections) == (2, 2)
    assert outcome.error_code == "blocked_target"
    assert inside.connections == 0


@pytest.mark.parametrize("addresses", [["127.0.0.2", "127.0.0.1"], ["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "::1"]])
def test_a_name_with_a_public_address_and_a_private_one_is_connected_to_at_neither(addresses: list[str]) -> None:
    """127.0.0.2 stands for the public one, and does not even listen: the next one would be tried."""
    with RawServer([{"send": HELLO}]) as inside:
        guard = EgressGuard(["127.0.0.2"], resolver=answering(*addresses), ports=HIGH_PORTS)
        outcome = fetch(order(f"http://name.example:{inside.port}/"), egress=guard)
    assert outcome.error_code == "blocked_target"
    assert inside.connections == 0


def test_a_redirect_to_a_port_that_is_closed_is_not_followed() -> None:
    with RawServer([{"send": HELLO}]) as closed, RawServer([]) as hop:
        hop.steps = [{"send": redirect(f"http://name.example:{closed.port}/")}]
        outcome = fetch(order(hop.url), egress=EgressGuard([hop.allowed], answering("1.1.1.1")))
    assert (outcome.error_code, closed.connections) == ("blocked_target", 0)
