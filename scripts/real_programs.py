"""Large programs that are recorded and verified by `scripts/soak --programs`: what each needs, how it is run, and
what it must print.

Packages are Debian's, by name; what Python needs goes into an environment of its own below the target directory.
Nothing here speaks to anybody but this host.
"""

import os
import pathlib
import shutil
import subprocess

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "programs" / "real"

PAGE = """<html><body><p id=a></p><script>
document.getElementById("a").textContent = [1, 2, 3].map(x => x * x).join()
</script></body></html>"""


def installed(packages):
    """Installs what is missing; no service is started."""
    is_there = lambda place: shutil.which(place) or os.path.exists(place)
    missing = [package for place, package in packages if not is_there(place)]
    if not missing:
        return
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    policy = pathlib.Path("/usr/sbin/policy-rc.d")
    has_policy = policy.exists()
    if not has_policy:
        text = "#!/bin/sh\nexit 101\n"
        subprocess.run([*as_root, "tee", policy], input=text, text=True, stdout=subprocess.DEVNULL, check=True)
        subprocess.run([*as_root, "chmod", "755", policy], check=True)
    try:
        command = ["apt-get", "install", "--quiet", "--yes", "--no-install-recommends", *missing]
        subprocess.run([*as_root, "env", "DEBIAN_FRONTEND=noninteractive", *command], check=True)
    finally:
        if not has_policy:
            subprocess.run([*as_root, "rm", "-f", policy], check=True)


def python_with(target, *names):
    """A Python that has these packages."""
    place = target / "soak" / "python"
    python = place / "bin" / "python"
    if not python.exists():
        installed([("/usr/share/doc/python3-venv", "python3-venv")])
        subprocess.run(["/usr/bin/python3", "-m", "venv", place], check=True)
    for name in names:
        there = subprocess.run([python, "-c", f"import {name.replace('grpcio', 'grpc')}"], stderr=subprocess.DEVNULL)
        if there.returncode != 0:
            subprocess.run([python, "-m", "pip", "install", "--quiet", name], check=True)
    return python


def openmpi(target, work):
    installed([("mpicc", "libopenmpi-dev"), ("mpirun", "openmpi-bin")])
    program = work / "mpi_ring"
    subprocess.run(["mpicc", "-O2", "-o", program, SOURCES / "mpi_ring.c"], check=True)
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", program]


def grpc(target, work):
    installed([("openssl", "openssl")])
    certificate, key = work / "certificate.pem", work / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True, stderr=subprocess.DEVNULL,
    )
    return [python_with(target, "grpcio"), SOURCES / "grpc_tls.py", certificate, key]


def chromium(target, work):
    installed([("chromium", "chromium")])
    (work / "page.html").write_text(PAGE)
    return [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={work}/profile", "--dump-dom", f"file://{work}/page.html",
    ]


def ray(target, work):
    # The names of its sockets begin with this, and may have a hundred letters.
    return [python_with(target, "ray"), SOURCES / "ray_actor.py", work / "ray"]


# What makes the command, and what it prints.
PROGRAMS = {
    "openmpi": (openmpi, "3 ranks, token 9, sum 3, whole 3.0"),
    "grpc": (grpc, "50 answers, 4950"),
    "chromium": (chromium, '<p id="a">1,4,9</p>'),
    "ray": (ray, "140 140 4194304"),
}
