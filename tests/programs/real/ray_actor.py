"""Ray with tasks, an actor and an object in shared memory.

    ray_actor.py DIRECTORY
"""

import sys

import ray

ray.init(
    num_cpus=2,
    include_dashboard=False,
    object_store_memory=80 << 20,
    _temp_dir=sys.argv[1],
    logging_level="error",
)


@ray.remote
def square(number):
    return number * number


@ray.remote
class Counter:
    def __init__(self):
        self.count = 0

    def add(self, amount):
        self.count += amount
        return self.count


counter = Counter.remote()
squares = ray.get([square.remote(i) for i in range(8)])
large = ray.put(bytes(4 << 20))
print(sum(squares), ray.get([counter.add.remote(i) for i in squares])[-1], len(ray.get(large)))
ray.shutdown()
