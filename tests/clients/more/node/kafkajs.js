// kafkajs: groups only, transactions; snappy, lz4 and zstd by other packages, as its guide says.
'use strict'

const kafkajs = require('kafkajs')
const zstd = require('@bokuweb/zstd-wasm')
const { adapterOf } = require('./kafkajs_adapter')
const { bootstrap, run } = require('./checks')

const { CompressionTypes, CompressionCodecs } = kafkajs
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
// lz4js, which others recommend, writes frames that Kafka refuses: its blocks claim to depend.
const lz4 = import('@platformatic/wasm-utils')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from((await lz4).lz4Compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from((await lz4).lz4Decompress(buffer))
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer))
})

const kafka = new kafkajs.Kafka({
  brokers: [bootstrap],
  clientId: 'more-clients',
  logLevel: kafkajs.logLevel.ERROR
})
const types = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD
}

const adapter = adapterOf({
  version: require('kafkajs/package.json').version,
  admin: kafka.admin(),
  codecs: Object.keys(types),
  // Its own way to wait gives up when Kafka doesn't know the topic at once.
  createOptions: { waitForLeaders: false },
  newProducer: ({ transactionalId }) =>
    kafka.producer({
      transactionalId,
      idempotent: Boolean(transactionalId),
      maxInFlightRequests: transactionalId ? 1 : undefined,
      createPartitioner: kafkajs.Partitioners.DefaultPartitioner
    }),
  sendOptions: (codec) => ({ acks: -1, compression: types[codec] }),
  newConsumer: (groupId) =>
    kafka.consumer({ groupId, sessionTimeout: 10000, heartbeatInterval: 500, metadataMaxAge: 2000 }),
  fromBeginning: { fromBeginning: true }
})

zstd.init().then(() => run(adapter))
