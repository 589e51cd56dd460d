"""Run inside gdb: stops a program at random places and dumps a core at each.

Environment: SEED, COUNT, OUT (directory). Half of the stops are a random
number of instructions after the last, half at a random instruction of a
random function of the program.
"""
import gdb
import os
import random

random.seed(int(os.environ["SEED"]))
count = int(os.environ["COUNT"])
out = os.environ["OUT"]


def run(command):
    return gdb.execute(command, to_string=True)


for setting in ("pagination off", "confirm off", "width 0", "startup-with-shell off",
                "disable-randomization on", "use-coredump-filter off"):
    run("set " + setting)
run("handle SIGUSR1 nostop noprint pass")
start = os.environ.get("START", "main")
run("break " + start)
run("run")
run("delete")


def alive():
    return gdb.selected_inferior().pid != 0


def functions():
    """(start, end) of the functions of the program that have lines."""
    found = set()
    for line in run("info functions -n .").splitlines():
        words = line.split(":", 1)
        if len(words) == 2 and words[0].strip().isdigit():
            text = words[1].rstrip(";").rsplit("(", 1)[0].split(" -> ")[0].split("(")[0].split()
            if text:
                found.add(text[-1].lstrip("*&"))
    places = []
    for name in sorted(found):
        try:
            symbol = gdb.lookup_global_symbol(name) or gdb.lookup_static_symbol(name)
            if symbol is None or not symbol.type.code == gdb.TYPE_CODE_FUNC:
                continue
            block = gdb.block_for_pc(int(symbol.value().address))
            while block is not None and block.function is None:
                block = block.superblock
            if block is not None and block.function == symbol:
                places.append((block.start, block.end))
        except (gdb.error, RuntimeError):
            continue
    return places


places = functions()
instructions = {}


def addresses(place):
    if place not in instructions:
        listing = gdb.selected_frame().architecture().disassemble(place[0], place[1] - 1)
        instructions[place] = [i["addr"] for i in listing]
    return instructions[place]


made = 0
tries = 0
while made < count and tries < count * 6:
    tries += 1
    if not alive():
        run("break " + start)
        run("run")
        run("delete")
    try:
        if random.random() < 0.5 or not places:
            run("stepi %d" % random.choice([1, 2, 3, 7, 20, 100, 400, 1500]))
        else:
            where = random.choice(addresses(random.choice(places)))
            run("tbreak *%d" % where)
            if random.random() < 0.5:
                run("ignore $bpnum %d" % random.randrange(20))
            run("continue")
            run("delete")
    except gdb.error as error:
        run("delete")
        if not alive():
            continue
    if not alive():
        continue
    run("generate-core-file %s/core.%d" % (out, made))
    made += 1
if alive():
    run("kill")
print("made %d" % made)
