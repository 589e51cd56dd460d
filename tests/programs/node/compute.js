// Covers: two threads that compute in code that was made at run time, in pages that can be written
// and executed at once, and take the processor from each other in the middle of it.
const { Worker, isMainThread, parentPort } = require('node:worker_threads');

function work(rounds) {
    let value = 1;
    for (let i = 0; i < rounds; i++)
        value = (value * 31 + i) | 0;
    return value;
}

if (isMainThread) {
    const worker = new Worker(__filename);
    worker.on('message', value => console.log('worker', value));
    for (let i = 0; i < 3; i++)
        console.log('main', work(2e7));
} else {
    for (let i = 0; i < 3; i++)
        parentPort.postMessage(work(2e7));
}
