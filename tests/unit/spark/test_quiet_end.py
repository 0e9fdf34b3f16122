"""Spark that ends before we do is nothing to print."""

from __future__ import annotations

import logging
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import is_error

from millstream.spark.session.ending import quieten


def test_a_broken_connection_to_java_is_an_error_and_not_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "filters", [])
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_accumulatorServer=None))
    quieten(spark)
    quieten(spark)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        connection = gateway._gateway_client._get_connection()
        gateway._gateway_client._give_back_connection(connection)
        server.accept()[0].close()
        answer = gateway._gateway_client.send_command("s\ngarbage\ne\n", retry=False)
    assert is_error(answer)[0]
    assert capsys.readouterr().err == ""
    logging.warning("others are shown")
    assert "others are shown" in capsys.readouterr().err
