"""An attacker's generator: graphs and modules put together freely, judged by what they compute."""
