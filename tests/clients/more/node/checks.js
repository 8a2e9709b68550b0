// What the node programs share: the same checks for every client, each client behind an adapter.
//
// adapter: {
//   version, codecs,
//   create(topic, partitions), ends(topic) -> [number], offsetAt(topic, partition, milliseconds),
//   committed(group, topic) -> [number or -1],
//   producer({codec, transactionalId}) -> {send(topic, records), transaction(), close()},
//   member(group, topic, onRecord, {from}) -> {assigned() -> [number], close()},
//   assigned(topic, {partition: offset}, onRecord) -> {close()}, absent where there is no such thing
// }
// A record is {partition, key, value, headers: {name: text}, timestamp}; what comes back has
// `offset`, too.
'use strict'

const PARTITIONS = 6
const PATIENCE_MS = 120000
const BATCH = 1000
const [bootstrap, countText] = process.argv.slice(2)
const count = Number(countText)
let failed = 0

function say (...words) {
  console.log(words.map((it) => String(it).replace(/[\n\t]/g, ' ')).join('\t'))
}

function check (what, holds, detail = '') {
  if (holds) say('ok', what)
  else {
    failed += 1
    say('FAIL', what, String(detail).slice(0, 400))
  }
}

function equal (what, got, wanted) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(wanted)]
  check(what, a === b, `got ${a}, wanted ${b}`)
}

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds))

async function until (condition, what, milliseconds = PATIENCE_MS) {
  const deadline = Date.now() + milliseconds
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited ${milliseconds} ms for ${what}`)
    await sleep(50)
  }
}

async function attempt (what, call) {
  try {
    await call()
  } catch (error) {
    check(what, false, (error && error.stack) || error)
  }
}

const topicName = (part) => `${part}-${Math.random().toString(16).slice(2, 10)}`

function makeRecords (many, label) {
  const first = Date.now() - 3600000
  return Array.from({ length: many }, (_, number) => ({
    partition: number % PARTITIONS,
    key: number % 7 === 3 ? null : `key-${number % 1000}`,
    value: `${label} ${number} ${'offset segment batch index '.repeat(number % 5)}`,
    headers: number % 5 === 0 ? { number: String(number) } : {},
    timestamp: first + number * 3
  }))
}

async function sendAll (producer, topic, records) {
  for (let at = 0; at < records.length; at += BATCH) {
    await producer.send(topic, records.slice(at, at + BATCH))
  }
}

const plain = (it) => JSON.stringify([it.key, it.value, it.headers, it.timestamp])

function sameInOrder (what, sent, received) {
  say('moved', received.length)
  for (let partition = 0; partition < PARTITIONS; partition++) {
    const wanted = sent.filter((it) => it.partition === partition).map(plain)
    const got = received.filter((it) => it.partition === partition).map(plain)
    const wrong = wanted.findIndex((it, index) => it !== got[index])
    if (wanted.length !== got.length || wrong >= 0) {
      const place = `partition ${partition}: ${got.length} of ${wanted.length}`
      check(what, false, `${place}, at ${wrong}: ${got[wrong]} for ${wanted[wrong]}`)
      return
    }
  }
  check(what, true)
}

async function codecs (adapter) {
  const many = Math.ceil(count / adapter.codecs.length)
  for (const codec of adapter.codecs) {
    await attempt(`produce and read, ${codec}`, async () => {
      const topic = topicName(codec)
      await adapter.create(topic, PARTITIONS)
      const records = makeRecords(many, codec)
      const producer = await adapter.producer({ codec })
      await sendAll(producer, topic, records)
      await producer.close()
      const received = []
      const reader = await adapter.member(topicName('group'), topic, (it) => received.push(it))
      await until(() => received.length >= many, `${received.length} of ${many}`).catch(() => {})
      await reader.close()
      sameInOrder(`produce and read, ${codec}`, records, received)
    })
  }
}

async function assignment (adapter) {
  if (!adapter.assigned) return say('none', 'consume by assignment', 'groups only')
  const topic = topicName('assigned')
  await adapter.create(topic, PARTITIONS)
  const records = makeRecords(6000, 'assigned')
  const producer = await adapter.producer({})
  await sendAll(producer, topic, records)
  await producer.close()
  const received = []
  const starts = Object.fromEntries(Array.from({ length: PARTITIONS }, (_, it) => [it, 10]))
  const reader = await adapter.assigned(topic, starts, (it) => received.push(it))
  await until(() => received.length >= 5940, 'records').catch(() => {})
  await reader.close()
  sameInOrder('consume by assignment', records.slice(60), received)
}

// Three members share; one leaves; nothing is lost; what is committed is the ends.
async function sharing (adapter) {
  const [topic, group] = [topicName('shared'), topicName('group')]
  await adapter.create(topic, PARTITIONS)
  const producer = await adapter.producer({})
  const records = makeRecords(9000, 'shared')
  const seen = new Set()
  const members = []
  const all = () => members.flatMap((it) => it.assigned()).sort()
  const shared = (sizes) => {
    const found = members.map((it) => it.assigned().length).sort()
    return all().join() === '0,1,2,3,4,5' && found.join() === sizes
  }
  const expect = async (sizes) =>
    await until(() => shared(sizes), `shares of ${sizes}`).catch((error) => {
      throw new Error(`${error.message}: ${JSON.stringify(members.map((it) => it.assigned()))}`)
    })
  const join = async () => members.push(await adapter.member(group, topic, (it) => seen.add(it.value)))
  await join()
  await expect('6')
  await sendAll(producer, topic, records.slice(0, 3000))
  await join()
  await join()
  await expect('2,2,2')
  check('three members share the partitions', true)
  await sendAll(producer, topic, records.slice(3000, 6000))
  await members.shift().close()
  await expect('3,3')
  check('a member leaves, the others take over', true)
  await sendAll(producer, topic, records.slice(6000))
  await until(() => seen.size >= 9000, `${seen.size} of 9000`).catch(() => {})
  equal('nothing is lost over rebalances', seen.size, 9000)
  for (const member of members) await member.close()
  await producer.close()
  equal('committed offsets are the ends', await adapter.committed(group, topic), await adapter.ends(topic))
  const again = []
  const member = await adapter.member(group, topic, (it) => again.push(it))
  await until(() => member.assigned().length === PARTITIONS, 'an assignment')
  // Behind what would be read once more, if it were.
  const last = makeRecords(PARTITIONS, 'last')
  const writer = await adapter.producer({})
  await sendAll(writer, topic, last)
  await writer.close()
  const wanted = last.map((it) => it.value).sort()
  const values = () => again.map((it) => it.value)
  const isThere = () => wanted.every((it) => values().includes(it))
  await until(isThere, 'what was written last').catch(() => {})
  await member.close()
  equal('a new member begins at what was committed', values().sort(), wanted)
}

async function byTime (adapter) {
  const topic = topicName('times')
  await adapter.create(topic, PARTITIONS)
  const records = makeRecords(6000, 'times')
  const producer = await adapter.producer({})
  await sendAll(producer, topic, records)
  await producer.close()
  const wanted = records.filter((it) => it.partition === 2)
  const offset = await adapter.offsetAt(topic, 2, wanted[400].timestamp - 1)
  equal('the offset at a time', offset, 400)
  const received = []
  const take = (it) => it.partition === 2 && received.push(it)
  const reader = adapter.assigned
    ? await adapter.assigned(topic, { 2: offset }, take)
    : await adapter.member(topicName('group'), topic, take, { partition: 2, offset })
  await until(() => received.some((it) => it.offset === 999), 'the end').catch(() => {})
  await reader.close()
  // A consumer of a group may have begun before it was told where to go.
  const after = received.slice(received.map((it) => it.offset).lastIndexOf(400))
  equal('read from that time on', [after.length, after[0] && after[0].value], [600, wanted[400].value])
}

async function transactions (adapter) {
  if (!adapter.hasTransactions) return say('none', 'transactions', 'the client has none')
  const [topic, source, group] = [topicName('committed'), topicName('source'), topicName('group')]
  await adapter.create(topic, PARTITIONS)
  await adapter.create(source, PARTITIONS)
  const producer = await adapter.producer({ transactionalId: topicName('transactional') })
  const records = makeRecords(4000, 'committed')
  for (const [from, ends] of [[0, 'commit'], [1000, 'abort'], [2000, 'commit']]) {
    const transaction = await producer.transaction()
    await transaction.send(topic, records.slice(from, from + 1000))
    await transaction[ends]()
  }
  const last = await producer.transaction()
  await last.send(topic, records.slice(3000))
  if (last.sendOffsets) await last.sendOffsets(group, source, [7, 8, 9])
  await last.commit()
  await producer.close()
  const received = []
  const reader = await adapter.member(topicName('group'), topic, (it) => received.push(it))
  // Aborted records would come before the last committed ones of their partition.
  await until(() => received.length >= 3000, `${received.length} of 3000`).catch(() => {})
  await reader.close()
  const wanted = records.filter((_, number) => number < 1000 || number >= 2000)
  sameInOrder('committed transactions are read, aborted ones not', wanted, received)
  if (last.sendOffsets) {
    const found = await adapter.committed(group, source)
    equal('offsets sent with a transaction are committed', found, [7, 8, 9, -1, -1, -1])
  }
}

async function run (adapter) {
  say('version', adapter.version)
  const parts = { codecs, assignment, sharing, byTime, transactions }
  for (const [name, part] of Object.entries(parts)) await attempt(name, () => part(adapter))
  if (adapter.close) await adapter.close()
  process.exit(failed ? 1 : 0)
}

process.on('unhandledRejection', (error) => {
  check('nothing is rejected unheard', false, (error && error.stack) || error)
})

module.exports = { bootstrap, PARTITIONS, run, until, topicName }
