// The adapter for kafkajs and for clients that take its calls.
'use strict'

const { PARTITIONS, until } = require('./checks')

const textOf = (it) => (it === null || it === undefined ? null : it.toString())

function recordOf (partition, message) {
  const names = Object.entries(message.headers || {})
  return {
    partition,
    key: textOf(message.key),
    value: textOf(message.value),
    headers: Object.fromEntries(names.map(([name, value]) => [name, textOf(value)])),
    timestamp: Number(message.timestamp),
    offset: Number(message.offset)
  }
}

const messages = (records) =>
  records.map((it) => ({ ...it, timestamp: String(it.timestamp) }))

function offsetsOf (found) {
  const offsets = Array(PARTITIONS).fill(-1)
  for (const it of found) offsets[it.partition] = Number(it.offset)
  return offsets
}

function transactionOf (transaction, codec, parts) {
  return {
    send: (topic, records) =>
      transaction.send({ topic, messages: messages(records), ...parts.sendOptions(codec) }),
    commit: () => transaction.commit(),
    abort: () => transaction.abort(),
    sendOffsets: parts.noOffsets
      ? undefined
      : (group, topic, offsets) =>
          transaction.sendOffsets({
            consumerGroupId: group,
            topics: [
              {
                topic,
                partitions: offsets.map((offset, partition) => ({ partition, offset: String(offset) }))
              }
            ]
          })
  }
}

// parts: {version, admin, codecs, newProducer, sendOptions, newConsumer, fromBeginning, assignedTo}
function adapterOf (parts) {
  const { admin } = parts
  const connected = admin.connect()
  return {
    version: parts.version,
    codecs: parts.codecs,
    hasTransactions: true,
    async create (topic, numPartitions) {
      await connected
      const topics = [{ topic, numPartitions, replicationFactor: 1 }]
      await admin.createTopics({ topics, ...parts.createOptions })
      // Leaders may not be known yet: kafkajs would send again what they had taken already.
      await until(async () => {
        try {
          return (await admin.fetchTopicOffsets(topic)).length === numPartitions
        } catch {
          return false
        }
      }, `leaders of ${topic}`)
    },
    async ends (topic) {
      const found = await admin.fetchTopicOffsets(topic)
      return offsetsOf(found.map((it) => ({ partition: it.partition, offset: it.high })))
    },
    async offsetAt (topic, partition, milliseconds) {
      const found = await admin.fetchTopicOffsetsByTimestamp(topic, milliseconds)
      return Number(found.find((it) => it.partition === partition).offset)
    },
    async committed (groupId, topic) {
      const found = await admin.fetchOffsets({ groupId, topics: [topic] })
      const of = found.find((it) => it.topic === topic)
      return offsetsOf(of ? of.partitions : [])
    },
    async producer ({ codec = 'none', transactionalId }) {
      const producer = parts.newProducer({ transactionalId, codec })
      await producer.connect()
      return {
        send: (topic, records) =>
          producer.send({ topic, messages: messages(records), ...parts.sendOptions(codec) }),
        transaction: async () => transactionOf(await producer.transaction(), codec, parts),
        close: () => producer.disconnect()
      }
    },
    member: (group, topic, onRecord, seek) => memberOf(parts, group, topic, onRecord, seek),
    close: () => admin.disconnect()
  }
}

async function memberOf (parts, group, topic, onRecord, seek) {
  const consumer = parts.newConsumer(group)
  let assigned = []
  if (!parts.assignedTo) {
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      assigned = payload.memberAssignment[topic] || []
    })
    consumer.on(consumer.events.REBALANCING, () => {
      assigned = []
    })
  }
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], ...parts.fromBeginning })
  await consumer.run({
    partitionsConsumedConcurrently: 3,
    eachBatchAutoResolve: true,
    eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
      for (const message of batch.messages) {
        onRecord(recordOf(batch.partition, message))
        resolveOffset(message.offset)
      }
      await heartbeat()
    }
  })
  if (seek) consumer.seek({ topic, partition: seek.partition, offset: String(seek.offset) })
  return {
    assigned: () => (parts.assignedTo ? parts.assignedTo(consumer) : assigned),
    close: () => consumer.disconnect()
  }
}

module.exports = { adapterOf }
