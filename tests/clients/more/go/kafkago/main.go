// kafka-go against a bootstrap server: see ../checks.
package main

import (
	"context"
	"errors"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"uringlog/moreclients/checks"
)

const batch = 2000

type client struct {
	bootstrap string
	kafka     *kafka.Client
}

func (c *client) Version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if strings.HasSuffix(module.Path, "/kafka-go") {
			return module.Version
		}
	}
	return "unknown"
}

func (c *client) Codecs() []string { return []string{"none", "gzip", "snappy", "lz4", "zstd"} }

func (c *client) Create(topic string, partitions int) error {
	config := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}
	request := &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}}
	answer, err := c.kafka.CreateTopics(context.Background(), request)
	if err != nil {
		return err
	}
	if err := answer.Errors[topic]; err != nil {
		return err
	}
	for range 100 {
		if _, err = c.Ends(topic); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

func (c *client) offsets(topic string, asked []kafka.OffsetRequest) ([]kafka.PartitionOffsets, error) {
	request := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: asked}}
	answer, err := c.kafka.ListOffsets(context.Background(), request)
	if err != nil {
		return nil, err
	}
	found := answer.Topics[topic]
	for _, it := range found {
		err = errors.Join(err, it.Error)
	}
	sort.Slice(found, func(a, b int) bool { return found[a].Partition < found[b].Partition })
	return found, err
}

func (c *client) Ends(topic string) ([]int64, error) {
	asked := []kafka.OffsetRequest{}
	for partition := range checks.Partitions {
		asked = append(asked, kafka.LastOffsetOf(partition))
	}
	found, err := c.offsets(topic, asked)
	ends := []int64{}
	for _, it := range found {
		ends = append(ends, it.LastOffset)
	}
	return ends, err
}

func (c *client) OffsetAt(topic string, partition int, milliseconds int64) (int64, error) {
	at := kafka.TimeOffsetOf(partition, time.UnixMilli(milliseconds))
	found, err := c.offsets(topic, []kafka.OffsetRequest{at})
	if err != nil {
		return 0, err
	}
	for offset := range found[0].Offsets {
		return offset, nil
	}
	return -1, nil
}

func (c *client) Committed(group, topic string) ([]int64, error) {
	answer, err := c.kafka.OffsetFetch(context.Background(), &kafka.OffsetFetchRequest{
		GroupID: group, Topics: map[string][]int{topic: {0, 1, 2, 3, 4, 5}},
	})
	if err != nil {
		return nil, err
	}
	offsets := make([]int64, checks.Partitions)
	for _, it := range answer.Topics[topic] {
		offsets[it.Partition] = it.CommittedOffset
		err = errors.Join(err, it.Error)
	}
	return offsets, errors.Join(err, answer.Error)
}

func byRecord(message kafka.Message, _ ...int) int { return message.WriterData.(int) }

func (c *client) Produce(topic, codec string, records []checks.Record) error {
	writer := &kafka.Writer{
		Addr: kafka.TCP(c.bootstrap), Topic: topic, Balancer: kafka.BalancerFunc(byRecord),
		BatchSize: batch, BatchTimeout: 5 * time.Millisecond, RequiredAcks: kafka.RequireAll,
	}
	if codec != "none" {
		if err := writer.Compression.UnmarshalText([]byte(codec)); err != nil {
			return err
		}
	}
	defer writer.Close()
	for at := 0; at < len(records); at += batch {
		messages := []kafka.Message{}
		for _, it := range records[at:min(at+batch, len(records))] {
			message := kafka.Message{
				Key: it.Key, Value: []byte(it.Value), Time: time.UnixMilli(it.Time),
				WriterData: it.Partition,
			}
			if it.Header != "" {
				header := kafka.Header{Key: "number", Value: []byte(it.Header)}
				message.Headers = []kafka.Header{header}
			}
			messages = append(messages, message)
		}
		if err := writer.WriteMessages(context.Background(), messages...); err != nil {
			return err
		}
	}
	return nil
}

func recordOf(message kafka.Message) checks.Record {
	record := checks.Record{
		Partition: message.Partition, Key: message.Key, Value: string(message.Value),
		Time: message.Time.UnixMilli(), Offset: message.Offset,
	}
	for _, header := range message.Headers {
		record.Header = string(header.Value)
	}
	return record
}

// read hands over records from an offset on until the context ends; gives the next offset.
func (c *client) read(
	ctx context.Context, topic string, partition int, offset int64, on func(checks.Record),
) int64 {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{c.bootstrap}, Topic: topic, Partition: partition,
		MaxWait: 200 * time.Millisecond, MinBytes: 1, MaxBytes: 1 << 20,
		IsolationLevel: kafka.ReadCommitted,
	})
	defer reader.Close()
	if err := reader.SetOffset(offset); err != nil {
		return offset
	}
	for {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return offset
			}
			continue
		}
		on(recordOf(message))
		offset = message.Offset + 1
	}
}

type member struct {
	group *kafka.ConsumerGroup
	done  chan struct{}
	lock  sync.Mutex
	has   []int
}

func (c *client) Member(group, topic string, on func(checks.Record)) (checks.Member, error) {
	joined, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: group, Brokers: []string{c.bootstrap}, Topics: []string{topic},
		GroupBalancers:    []kafka.GroupBalancer{kafka.RangeGroupBalancer{}},
		HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 10 * time.Second,
		StartOffset: kafka.FirstOffset, JoinGroupBackoff: 200 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	m := &member{group: joined, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for {
			generation, err := joined.Next(context.Background())
			if errors.Is(err, kafka.ErrGroupClosed) {
				return
			}
			if err == nil {
				c.serve(m, generation, topic, on)
			}
		}
	}()
	return m, nil
}

func (c *client) serve(
	m *member, generation *kafka.Generation, topic string, on func(checks.Record),
) {
	has := []int{}
	for _, assignment := range generation.Assignments[topic] {
		has = append(has, assignment.ID)
		generation.Start(func(ctx context.Context) {
			next := c.read(ctx, topic, assignment.ID, assignment.Offset, on)
			m.remove(assignment.ID)
			if next > 0 {
				offsets := map[string]map[int]int64{topic: {assignment.ID: next}}
				_ = generation.CommitOffsets(offsets)
			}
		})
	}
	m.lock.Lock()
	m.has = has
	m.lock.Unlock()
}

func (m *member) remove(partition int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	left := []int{}
	for _, it := range m.has {
		if it != partition {
			left = append(left, it)
		}
	}
	m.has = left
}

func (m *member) Assigned() []int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return append([]int(nil), m.has...)
}

func (m *member) Close() error {
	err := m.group.Close()
	<-m.done
	return err
}

type assigned struct {
	cancel  context.CancelFunc
	readers sync.WaitGroup
}

func (c *client) Assigned(
	topic string, starts map[int]int64, on func(checks.Record),
) (checks.Member, error) {
	ctx, cancel := context.WithCancel(context.Background())
	found := &assigned{cancel: cancel}
	for partition, offset := range starts {
		found.readers.Add(1)
		go func() {
			defer found.readers.Done()
			c.read(ctx, topic, partition, offset, on)
		}()
	}
	return found, nil
}

func (a *assigned) Assigned() []int { return nil }

func (a *assigned) Close() error {
	a.cancel()
	a.readers.Wait()
	return nil
}

// Transactional: the library has the requests, but no producer that writes in a transaction.
func (c *client) Transactional(string) (checks.Transaction, error) { return nil, nil }

func main() {
	checks.Main(func(bootstrap string) (checks.Client, error) {
		at := kafka.TCP(bootstrap)
		return &client{bootstrap, &kafka.Client{Addr: at, Timeout: 30 * time.Second}}, nil
	})
}
