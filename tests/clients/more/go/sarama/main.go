// sarama against a bootstrap server: see ../checks.
package main

import (
	"context"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"uringlog/moreclients/checks"
)

const batch = 2000

type client struct {
	bootstrap []string
	client    sarama.Client
	admin     sarama.ClusterAdmin
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.ClientID = "more-clients"
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 10 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	return config
}

func (c *client) Version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if strings.HasSuffix(module.Path, "/sarama") {
			return module.Version + ", protocol " + sarama.MaxVersion.String()
		}
	}
	return "unknown"
}

func (c *client) Codecs() []string { return []string{"none", "gzip", "snappy", "lz4", "zstd"} }

func (c *client) Create(topic string, partitions int) error {
	detail := &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1}
	return c.admin.CreateTopic(topic, detail, false)
}

func (c *client) Ends(topic string) ([]int64, error) {
	ends := make([]int64, checks.Partitions)
	for partition := range ends {
		end, err := c.client.GetOffset(topic, int32(partition), sarama.OffsetNewest)
		if err != nil {
			return nil, err
		}
		ends[partition] = end
	}
	return ends, nil
}

func (c *client) OffsetAt(topic string, partition int, milliseconds int64) (int64, error) {
	return c.client.GetOffset(topic, int32(partition), milliseconds)
}

func (c *client) Committed(group, topic string) ([]int64, error) {
	asked := map[string][]int32{topic: {0, 1, 2, 3, 4, 5}}
	found, err := c.admin.ListConsumerGroupOffsets(group, asked)
	if err != nil {
		return nil, err
	}
	offsets := make([]int64, checks.Partitions)
	for partition := range offsets {
		offsets[partition] = -1
		if block := found.GetBlock(topic, int32(partition)); block != nil {
			offsets[partition] = block.Offset
		}
	}
	return offsets, nil
}

func messages(topic string, records []checks.Record) []*sarama.ProducerMessage {
	found := make([]*sarama.ProducerMessage, len(records))
	for i, it := range records {
		message := &sarama.ProducerMessage{
			Topic: topic, Partition: int32(it.Partition), Value: sarama.StringEncoder(it.Value),
			Timestamp: time.UnixMilli(it.Time),
		}
		if it.Key != nil {
			message.Key = sarama.ByteEncoder(it.Key)
		}
		if it.Header != "" {
			header := sarama.RecordHeader{Key: []byte("number"), Value: []byte(it.Header)}
			message.Headers = []sarama.RecordHeader{header}
		}
		found[i] = message
	}
	return found
}

func (c *client) Produce(topic, codec string, records []checks.Record) error {
	config := settings()
	if err := config.Producer.Compression.UnmarshalText([]byte(codec)); err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducer(c.bootstrap, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	return sendAll(producer, topic, records)
}

func sendAll(producer sarama.SyncProducer, topic string, records []checks.Record) error {
	for at := 0; at < len(records); at += batch {
		part := records[at:min(at+batch, len(records))]
		if err := producer.SendMessages(messages(topic, part)); err != nil {
			return err
		}
	}
	return nil
}

func recordOf(message *sarama.ConsumerMessage) checks.Record {
	record := checks.Record{
		Partition: int(message.Partition), Key: message.Key, Value: string(message.Value),
		Time: message.Timestamp.UnixMilli(), Offset: message.Offset,
	}
	for _, header := range message.Headers {
		record.Header = string(header.Value)
	}
	return record
}

type member struct {
	group  sarama.ConsumerGroup
	topic  string
	on     func(checks.Record)
	cancel context.CancelFunc
	done   chan struct{}
	lock   sync.Mutex
	has    []int
}

func (c *client) Member(group, topic string, on func(checks.Record)) (checks.Member, error) {
	joined, err := sarama.NewConsumerGroup(c.bootstrap, group, settings())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{group: joined, topic: topic, on: on, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			if err := joined.Consume(ctx, []string{topic}, m); err != nil {
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return m, nil
}

func (m *member) set(partitions []int) {
	m.lock.Lock()
	m.has = partitions
	m.lock.Unlock()
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	has := []int{}
	for _, partition := range session.Claims()[m.topic] {
		has = append(has, int(partition))
	}
	sort.Ints(has)
	m.set(has)
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.set(nil)
	return nil
}

func (m *member) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for message := range claim.Messages() {
		m.on(recordOf(message))
		session.MarkMessage(message, "")
	}
	return nil
}

func (m *member) Assigned() []int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return append([]int(nil), m.has...)
}

func (m *member) Close() error {
	m.cancel()
	<-m.done
	return m.group.Close()
}

type assigned struct {
	consumer   sarama.Consumer
	partitions []sarama.PartitionConsumer
	readers    sync.WaitGroup
}

func (c *client) Assigned(
	topic string, starts map[int]int64, on func(checks.Record),
) (checks.Member, error) {
	consumer, err := sarama.NewConsumer(c.bootstrap, settings())
	if err != nil {
		return nil, err
	}
	found := &assigned{consumer: consumer}
	for partition, offset := range starts {
		one, err := consumer.ConsumePartition(topic, int32(partition), offset)
		if err != nil {
			return nil, err
		}
		found.partitions = append(found.partitions, one)
		found.readers.Add(1)
		go func() {
			defer found.readers.Done()
			for message := range one.Messages() {
				on(recordOf(message))
			}
		}()
	}
	return found, nil
}

func (a *assigned) Assigned() []int { return nil }

func (a *assigned) Close() error {
	for _, one := range a.partitions {
		one.AsyncClose()
	}
	a.readers.Wait()
	return a.consumer.Close()
}

type transaction struct{ producer sarama.SyncProducer }

func (c *client) Transactional(id string) (checks.Transaction, error) {
	config := settings()
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = id
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(c.bootstrap, config)
	if err != nil {
		return nil, err
	}
	return &transaction{producer}, nil
}

func (t *transaction) Begin() error { return t.producer.BeginTxn() }

func (t *transaction) Send(topic string, records []checks.Record) error {
	return sendAll(t.producer, topic, records)
}

func (t *transaction) SendOffsets(group, topic string, offsets []int64) error {
	blocks := []*sarama.PartitionOffsetMetadata{}
	for partition, offset := range offsets {
		block := &sarama.PartitionOffsetMetadata{Partition: int32(partition), Offset: offset}
		blocks = append(blocks, block)
	}
	sent := map[string][]*sarama.PartitionOffsetMetadata{topic: blocks}
	return t.producer.AddOffsetsToTxn(sent, group)
}

func (t *transaction) End(commit bool) error {
	if commit {
		return t.producer.CommitTxn()
	}
	return t.producer.AbortTxn()
}

func (t *transaction) Close() error { return t.producer.Close() }

func main() {
	checks.Main(func(bootstrap string) (checks.Client, error) {
		c := &client{bootstrap: []string{bootstrap}}
		var err error
		if c.client, err = sarama.NewClient(c.bootstrap, settings()); err != nil {
			return nil, err
		}
		c.admin, err = sarama.NewClusterAdmin(c.bootstrap, settings())
		return c, err
	})
}
