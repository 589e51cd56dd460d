"""Run inside gdb: prints what gdb knows about each core as one line of JSON.

Environment: OUT (directory with core.N), FROM, COUNT.
"""
import gdb
import json
import os

out = os.environ["OUT"]
count = int(os.environ["COUNT"])


def run(command):
    try:
        return gdb.execute(command, to_string=True)
    except gdb.error as error:
        return "error: " + str(error)


for setting in ("pagination off", "confirm off", "width 0", "print pretty off", "print symbol on",
                "print frame-arguments scalars", "max-value-size unlimited", "style enabled off",
                "python print-stack none", "print address on"):
    run("set " + setting)
run("disable pretty-printer")
result = open(os.path.join(out, "gdb.json"), "a")
for number in range(int(os.environ["FROM"]), count):
    core = "%s/core.%d" % (out, number)
    if not os.path.exists(core):
        break
    run("core-file " + core)
    threads = []
    for thread in sorted(gdb.selected_inferior().threads(), key=lambda t: t.num):
        thread.switch()
        frames = []
        frame = gdb.newest_frame()
        level = 0
        while frame is not None and level < 40:
            frame.select()
            record = {
                "name": frame.name(),
                "pc": frame.pc(),
                "type": int(frame.type()),
                "locals": run("info locals"),
                "args": run("info args"),
            }
            sal = frame.find_sal()
            if sal.symtab is not None:
                record["file"] = sal.symtab.filename
                record["line"] = sal.line
            frames.append(record)
            frame = frame.older()
            level += 1
        threads.append({"tid": thread.ptid[1], "bt": run("bt"), "frames": frames,
                        "registers": run("info registers")})
    json.dump({"core": core, "threads": threads}, result)
    result.write("\n")
    # gdb may fail at the next one.
    result.flush()
result.close()
