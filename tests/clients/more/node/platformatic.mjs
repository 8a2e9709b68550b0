// @platformatic/kafka: the classic protocol; assignment only within a group of one.
import {
  Admin, Consumer, MessagesStreamModes, Producer, stringDeserializers, stringSerializers
} from '@platformatic/kafka'
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'
import zlib from 'node:zlib'

const { bootstrap, PARTITIONS, run, until } = createRequire(import.meta.url)('./checks.js')

const common = { clientId: 'more-clients', bootstrapBrokers: [bootstrap], metadataMaxAge: 2000 }
const READ_COMMITTED = 1
const admin = new Admin(common)

const messages = (topic, records) =>
  records.map((it) => ({
    topic,
    partition: it.partition,
    key: it.key === null ? undefined : it.key,
    value: it.value,
    headers: it.headers,
    timestamp: BigInt(it.timestamp)
  }))

const recordOf = (message) => ({
  partition: message.partition,
  key: message.key === undefined || message.key === null ? null : String(message.key),
  value: message.value,
  headers: Object.fromEntries(message.headers),
  timestamp: Number(message.timestamp),
  offset: Number(message.offset)
})

async function listed (topic, timestamp) {
  const partitions = Array.from({ length: PARTITIONS }, (_, it) => ({ partitionIndex: it, timestamp }))
  const [found] = await admin.listOffsets({ topics: [{ name: topic, partitions }] })
  const offsets = Array(PARTITIONS).fill(-1)
  for (const it of found.partitions) offsets[it.partitionIndex] = Number(it.offset)
  return offsets
}

async function committed (group, topic) {
  const partitionIndexes = Array.from({ length: PARTITIONS }, (_, it) => it)
  const [found] = await admin.listConsumerGroupOffsets({
    groups: [{ groupId: group, topics: [{ name: topic, partitionIndexes }] }]
  })
  const offsets = Array(PARTITIONS).fill(-1)
  const of = found.topics.find((it) => it.name === topic)
  for (const it of of ? of.partitions : []) offsets[it.partitionIndex] = Number(it.committedOffset)
  return offsets
}

async function producer ({ codec = 'none', transactionalId }) {
  const made = new Producer({
    ...common,
    serializers: stringSerializers,
    ...(transactionalId && { transactionalId, idempotent: true })
  })
  const options = { compression: codec, acks: -1 }
  return {
    send: (topic, records) => made.send({ messages: messages(topic, records), ...options }),
    async transaction () {
      const transaction = await made.beginTransaction()
      return {
        send: (topic, records) => transaction.send({ messages: messages(topic, records), ...options }),
        commit: () => transaction.commit(),
        abort: () => transaction.abort()
      }
    },
    close: () => made.close()
  }
}

async function member (group, topic, onRecord, seek) {
  const consumer = new Consumer({
    ...common,
    groupId: group,
    deserializers: stringDeserializers,
    autocommit: 200,
    sessionTimeout: 10000,
    rebalanceTimeout: 10000,
    heartbeatInterval: 500,
    maxWaitTime: 200,
    isolationLevel: READ_COMMITTED
  })
  const stream = await consumer.consume({
    topics: [topic],
    ...(seek
      ? { mode: MessagesStreamModes.MANUAL, offsets: offsetsOf(topic, seek) }
      : { mode: MessagesStreamModes.COMMITTED, fallbackMode: 'earliest' })
  })
  stream.on('data', (message) => onRecord(recordOf(message)))
  stream.on('error', (error) => console.error(error))
  return {
    assigned: () =>
      (consumer.assignments || []).filter((it) => it.topic === topic).flatMap((it) => it.partitions),
    async close () {
      await stream.close()
      await consumer.close(true)
    }
  }
}

const offsetsOf = (topic, seek) =>
  Array.from({ length: PARTITIONS }, (_, partition) => ({
    topic,
    partition,
    offset: BigInt(partition === seek.partition ? seek.offset : 0)
  }))

const { version } = JSON.parse(readFileSync(new URL('./node_modules/@platformatic/kafka/package.json', import.meta.url)))
run({
  version,
  // zstd is node's own, from node 22.15 on.
  codecs: ['none', 'gzip', 'snappy', 'lz4', ...(zlib.zstdCompressSync ? ['zstd'] : [])],
  hasTransactions: true,
  async create (topic, partitions) {
    await admin.createTopics({ topics: [topic], partitions, replicas: 1 })
    await until(async () => {
      try {
        await listed(topic, -1n)
        return true
      } catch {
        return false
      }
    }, `leaders of ${topic}`)
  },
  ends: (topic) => listed(topic, -1n),
  offsetAt: async (topic, partition, milliseconds) => (await listed(topic, BigInt(milliseconds)))[partition],
  committed,
  producer,
  member,
  close: () => admin.close()
})
