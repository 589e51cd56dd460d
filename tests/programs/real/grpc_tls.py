"""A gRPC server with TLS and a client of it in a process of its own.

    grpc_tls.py CERTIFICATE KEY
"""

import pathlib
import subprocess
import sys
from concurrent import futures

import grpc

METHODS = {
    "Echo": grpc.unary_unary_rpc_method_handler(lambda request, _: request[::-1]),
    "Count": grpc.unary_stream_rpc_method_handler(
        lambda request, _: (b"%d" % i for i in range(int(request)))
    ),
}


def serve(certificate, key):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Test", METHODS),))
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
    port = server.add_secure_port("localhost:0", credentials)
    server.start()
    client = subprocess.run([sys.executable, __file__, "--client", certificate, str(port)])
    server.stop(1).wait()
    return client.returncode


def ask(certificate, port):
    credentials = grpc.ssl_channel_credentials(pathlib.Path(certificate).read_bytes())
    with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
        echo, count = channel.unary_unary("/Test/Echo"), channel.unary_stream("/Test/Count")
        calls = [echo.future(b"request %d" % i) for i in range(50)]
        answers = [call.result() for call in calls]
        assert answers == [(b"request %d" % i)[::-1] for i in range(50)], answers
        print(len(answers), "answers,", sum(map(int, count(b"100"))))
    return 0


if sys.argv[1] == "--client":
    sys.exit(ask(*sys.argv[2:]))
sys.exit(serve(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
