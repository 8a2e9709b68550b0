// @confluentinc/kafka-javascript (librdkafka) by the calls that it shares with kafkajs.
'use strict'

const library = require('@confluentinc/kafka-javascript')
const { adapterOf } = require('./kafkajs_adapter')
const { bootstrap, run } = require('./checks')

const { Kafka, CompressionTypes, logLevel } = library.KafkaJS
const kafka = new Kafka({
  kafkaJS: { brokers: [bootstrap], clientId: 'more-clients', logLevel: logLevel.NOTHING }
})
const types = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.SNAPPY,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD
}

const adapter = adapterOf({
  version: `${require('@confluentinc/kafka-javascript/package.json').version}, librdkafka ${library.librdkafkaVersion}`,
  admin: kafka.admin(),
  codecs: Object.keys(types),
  newProducer: ({ transactionalId, codec }) =>
    kafka.producer({
      kafkaJS: { acks: -1, compression: types[codec], ...(transactionalId && { transactionalId }) }
    }),
  sendOptions: () => ({}),
  // It wants the consumer itself, not the group's name.
  noOffsets: true,
  newConsumer: (groupId) =>
    kafka.consumer({
      kafkaJS: {
        groupId,
        sessionTimeout: 10000,
        heartbeatInterval: 500,
        fromBeginning: true,
        autoCommitInterval: 200
      }
    }),
  fromBeginning: {},
  assignedTo: (consumer) => {
    try {
      return consumer.assignment().map((it) => it.partition)
    } catch {
      return []
    }
  }
})

run(adapter)
