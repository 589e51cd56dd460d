// Covers: Node with an HTTP server and clients, child processes, worker threads with shared memory,
// timers, files through the thread pool.
//
// Hard for a recorder: a compiler that writes machine code into memory while it runs, a dozen
// threads that wake each other through eventfds and futexes, and io_uring where the kernel has it.
'use strict';
const assert = require('assert');
const { execFile, spawn } = require('child_process');
const crypto = require('crypto');
const fs = require('fs');
const http = require('http');
const os = require('os');
const path = require('path');
const { promisify } = require('util');
const { isMainThread, parentPort, workerData, Worker } = require('worker_threads');

function fibonacci(n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

function request(port, text) {
    return new Promise((resolve, reject) => {
        const req = http.request({ port, host: '127.0.0.1', method: 'POST', path: '/echo' }, (res) => {
            let body = '';
            res.setEncoding('utf8');
            res.on('data', (part) => { body += part; });
            res.on('end', () => resolve(`${res.statusCode} ${body}`));
        });
        req.on('error', reject);
        req.end(text);
    });
}

async function web() {
    const server = http.createServer((req, res) => {
        const parts = [];
        req.on('data', (part) => parts.push(part));
        req.on('end', () => res.end(Buffer.concat(parts).toString().toUpperCase()));
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address();
    const answers = await Promise.all(
        Array.from({ length: 30 }, (_, i) => request(port, `request ${i}`)));
    answers.forEach((answer, i) => assert.strictEqual(answer, `200 REQUEST ${i}`));
    await new Promise((resolve) => server.close(resolve));
    console.log(`web: ${answers.length} answers`);
}

async function children() {
    const { stdout } = await promisify(execFile)('sh', ['-c', 'echo out; echo err >&2']);
    assert.strictEqual(stdout, 'out\n');
    const child = spawn('cat');
    let text = '';
    child.stdout.on('data', (part) => { text += part; });
    child.stdin.end('through cat');
    assert.strictEqual(await new Promise((resolve) => child.on('close', resolve)), 0);
    assert.strictEqual(text, 'through cat');
    const sleeper = spawn('sleep', ['100']);
    sleeper.kill('SIGTERM');
    const signal = await new Promise((resolve) => sleeper.on('exit', (_, sig) => resolve(sig)));
    const missing = spawn('/nonexistent/program');
    const error = await new Promise((resolve) => missing.on('error', resolve));
    console.log(`children: ${text}, ${signal}, ${error.code}`);
}

async function workers() {
    const shared = new Int32Array(new SharedArrayBuffer(8));
    const results = await Promise.all([18, 19, 20].map((n) => new Promise((resolve, reject) => {
        const worker = new Worker(__filename, { workerData: { n, shared } });
        worker.on('message', resolve);
        worker.on('error', reject);
    })));
    console.log(`workers: ${results.join(' ')}, added ${Atomics.load(shared, 0)}`);
}

async function timersAndFiles() {
    let ticks = 0;
    await new Promise((resolve) => {
        const timer = setInterval(() => {
            if (++ticks === 5) {
                clearInterval(timer);
                resolve();
            }
        }, 2);
    });
    await new Promise((resolve) => setImmediate(resolve));
    const directory = await fs.promises.mkdtemp(path.join(os.tmpdir(), 'mw-node.'));
    const names = Array.from({ length: 10 }, (_, i) => path.join(directory, `file-${i}`));
    await Promise.all(names.map((name, i) => fs.promises.writeFile(name, 'x'.repeat(i))));
    const sizes = await Promise.all(names.map(async (name) => (await fs.promises.stat(name)).size));
    await fs.promises.rm(directory, { recursive: true });
    const hash = await promisify(crypto.pbkdf2)('password', 'salt', 100, 8, 'sha256');
    const random = await promisify(crypto.randomBytes)(16);
    assert.strictEqual(random.length, 16);
    console.log(`timers ${ticks}, sizes ${sizes.reduce((a, b) => a + b)}, hash ${hash.toString('hex')}`);
    if (process.argv[2] === 'order') {
        console.log(`random ${random.toString('hex')} ${Math.random()}, time ${process.hrtime.bigint()}`);
    }
}

async function main() {
    await web();
    await children();
    await workers();
    await timersAndFiles();
    console.log(`computed: ${fibonacci(22)}`);
}

if (isMainThread) {
    main().catch((error) => {
        console.error(error);
        process.exit(1);
    });
} else {
    const { n, shared } = workerData;
    for (let i = 0; i < 1000; i++) {
        Atomics.add(shared, 0, 1);
    }
    parentPort.postMessage(fibonacci(n));
}
