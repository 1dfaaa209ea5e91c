// grpc-js, unmodified, with its defaults: the cases of test_grpc_clients.py, each told as a line of JSON.
//   node client.js TARGET [tls]
const grpc = require('@grpc/grpc-js');
const readline = require('readline');

const bytes = { serialize: (value) => value, deserialize: (value) => value };
const method = (name, responseStream) => ({
  path: `/acme.Echo/${name}`, requestStream: false, responseStream,
  requestSerialize: bytes.serialize, requestDeserialize: bytes.deserialize,
  responseSerialize: bytes.serialize, responseDeserialize: bytes.deserialize,
});
const Echo = grpc.makeGenericClientConstructor(
  { echo: method('echo', false), wait: method('wait', false), count: method('count', true) }, 'acme.Echo');
const { createSsl, createInsecure } = grpc.credentials;
const client = new Echo(process.argv[2], process.argv[3] === 'tls' ? createSsl() : createInsecure());

const metadata = (fields) => {
  const made = new grpc.Metadata();
  for (const [name, value] of Object.entries(fields)) made.set(name, value);
  return made;
};
const tell = (name, found) => console.log(JSON.stringify({ case: name, ...found }));
const soon = () => ({ deadline: Date.now() + 20000 });

const unary = (name, fields, options = soon(), call = 'echo') => new Promise((done) => {
  client[call](Buffer.from('hello'), metadata(fields), options, (error, reply) => {
    tell(name, { code: error ? error.code : 0, reply: error ? null : reply.toString() });
    done();
  });
});
const stream = (name, fields) => new Promise((done) => {
  const call = client.count(Buffer.from('4 0'), metadata(fields), soon());
  const replies = [];
  call.on('data', (reply) => replies.push(reply.toString()));
  call.on('error', () => {});
  call.on('status', (status) => { tell(name, { code: status.code, reply: replies.join(',') }); done(); });
});
const cancelled = (name, fields) => new Promise((done) => {
  const call = client.wait(Buffer.from('hello'), metadata(fields), soon(), (error) => {
    tell(name, { code: error ? error.code : 0, reply: null });
    done();
  });
  readline.createInterface({ input: process.stdin }).once('line', () => call.cancel());
});

(async () => {
  await unary('unary', { key: 'unary', fail: '2' });
  await stream('stream', { key: 'stream', fail: '1' });
  await unary('given up', { key: 'given up', fail: '99' });
  await unary('deadline', { key: 'deadline' }, { deadline: Date.now() + 500 }, 'wait');
  await cancelled('cancelled', { key: 'cancelled' });
  client.close();
  process.stdin.destroy();
})();
