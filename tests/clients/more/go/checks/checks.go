// Package checks holds what the Go programs share: the same checks for every client, each behind
// the interface Client. What is printed is described in ../../checks.py.
package checks

import (
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Partitions is how many each topic has.
const Partitions = 6

const patience = 120 * time.Second

// Record is what is sent and read; Time is in milliseconds.
type Record struct {
	Partition int
	Key       []byte
	Value     string
	Header    string
	Time      int64
	Offset    int64
}

// Member reads as part of a group, or the partitions it was told.
type Member interface {
	Assigned() []int
	Close() error
}

// Transaction is one of a producer with a transactional id. SendOffsets says whether it could.
type Transaction interface {
	Begin() error
	Send(topic string, records []Record) error
	SendOffsets(group, topic string, offsets []int64) error
	End(commit bool) error
	Close() error
}

// Client is the library under test.
type Client interface {
	Version() string
	Codecs() []string
	Create(topic string, partitions int) error
	Ends(topic string) ([]int64, error)
	OffsetAt(topic string, partition int, milliseconds int64) (int64, error)
	Committed(group, topic string) ([]int64, error)
	Produce(topic, codec string, records []Record) error
	Member(group, topic string, on func(Record)) (Member, error)
	Assigned(topic string, starts map[int]int64, on func(Record)) (Member, error)
	// Transactional gives nil where the client has no transactions.
	Transactional(id string) (Transaction, error)
}

type run struct {
	client Client
	count  int
	failed int
}

func say(words ...any) {
	flat := make([]string, len(words))
	for i, word := range words {
		flat[i] = strings.NewReplacer("\n", " ", "\t", " ").Replace(fmt.Sprint(word))
	}
	fmt.Println(strings.Join(flat, "\t"))
}

func (r *run) check(what string, holds bool, detail any) {
	if holds {
		say("ok", what)
		return
	}
	r.failed++
	say("FAIL", what, detail)
}

func (r *run) equal(what string, got, wanted any) {
	r.check(what, reflect.DeepEqual(got, wanted), fmt.Sprintf("got %v, wanted %v", got, wanted))
}

func (r *run) attempt(what string, call func() error) {
	if err := call(); err != nil {
		r.check(what, false, err)
	}
}

func until(condition func() bool) bool {
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

// Name gives a name that no earlier run used.
func Name(part string) string { return fmt.Sprintf("%s-%08x", part, rand.Uint32()) }

func makeRecords(many int, label string) []Record {
	first := time.Now().UnixMilli() - 3_600_000
	records := make([]Record, many)
	for n := range records {
		record := Record{Partition: n % Partitions, Time: first + int64(n)*3}
		record.Value = fmt.Sprintf("%s %d %s", label, n, strings.Repeat("offset segment ", n%5))
		if n%7 != 3 {
			record.Key = fmt.Appendf(nil, "key-%d", n%1000)
		}
		if n%5 == 0 {
			record.Header = strconv.Itoa(n)
		}
		records[n] = record
	}
	return records
}

func plain(records []Record, partition int) []string {
	found := []string{}
	for _, it := range records {
		if it.Partition == partition {
			found = append(found, fmt.Sprintf("%q %q %q %d", it.Key, it.Value, it.Header, it.Time))
		}
	}
	return found
}

func (r *run) sameInOrder(what string, sent, received []Record) {
	say("moved", len(received))
	for partition := range Partitions {
		wanted, got := plain(sent, partition), plain(received, partition)
		if !reflect.DeepEqual(wanted, got) {
			first := 0
			for first < min(len(wanted), len(got)) && wanted[first] == got[first] {
				first++
			}
			r.check(what, false, fmt.Sprintf("partition %d: %d of %d, differ at %d",
				partition, len(got), len(wanted), first))
			return
		}
	}
	r.check(what, true, nil)
}

// collector takes records from any number of goroutines.
type collector struct {
	sync.Mutex
	records []Record
}

func (c *collector) add(record Record) {
	c.Lock()
	c.records = append(c.records, record)
	c.Unlock()
}

func (c *collector) all() []Record {
	c.Lock()
	defer c.Unlock()
	return append([]Record(nil), c.records...)
}

func (c *collector) values() map[string]bool {
	seen := map[string]bool{}
	for _, it := range c.all() {
		seen[it.Value] = true
	}
	return seen
}

func (c *collector) size() int {
	c.Lock()
	defer c.Unlock()
	return len(c.records)
}

func (r *run) codecs() error {
	codecs := r.client.Codecs()
	many := (r.count + len(codecs) - 1) / len(codecs)
	for _, codec := range codecs {
		what := "produce and read, " + codec
		r.attempt(what, func() error {
			topic, records, read := Name(codec), makeRecords(many, codec), &collector{}
			if err := r.client.Create(topic, Partitions); err != nil {
				return err
			}
			if err := r.client.Produce(topic, codec, records); err != nil {
				return err
			}
			member, err := r.client.Member(Name("group"), topic, read.add)
			if err != nil {
				return err
			}
			until(func() bool { return read.size() >= many })
			r.sameInOrder(what, records, read.all())
			return member.Close()
		})
	}
	return nil
}

func (r *run) assignment() error {
	topic, records, read := Name("assigned"), makeRecords(6000, "assigned"), &collector{}
	if err := r.client.Create(topic, Partitions); err != nil {
		return err
	}
	if err := r.client.Produce(topic, "none", records); err != nil {
		return err
	}
	starts := map[int]int64{}
	for partition := range Partitions {
		starts[partition] = 10
	}
	reader, err := r.client.Assigned(topic, starts, read.add)
	if err != nil {
		return err
	}
	until(func() bool { return read.size() >= 5940 })
	r.sameInOrder("consume by assignment", records[60:], read.all())
	return reader.Close()
}

func shares(members []Member) (string, string) {
	all, sizes := []int{}, []int{}
	for _, member := range members {
		all = append(all, member.Assigned()...)
		sizes = append(sizes, len(member.Assigned()))
	}
	sort.Ints(all)
	sort.Ints(sizes)
	return fmt.Sprint(all), fmt.Sprint(sizes)
}

func (r *run) expectShares(what string, members []Member, wanted string) {
	r.check(what, until(func() bool {
		all, sizes := shares(members)
		return all == "[0 1 2 3 4 5]" && sizes == wanted
	}), fmt.Sprint(shares(members)))
}

// Three members share; one leaves; nothing is lost; what is committed is the ends.
func (r *run) sharing() error {
	topic, group, seen := Name("shared"), Name("group"), &collector{}
	if err := r.client.Create(topic, Partitions); err != nil {
		return err
	}
	records := makeRecords(9000, "shared")
	members := []Member{}
	join := func() error {
		member, err := r.client.Member(group, topic, seen.add)
		members = append(members, member)
		return err
	}
	part := func(from int) error { return r.client.Produce(topic, "none", records[from:from+3000]) }
	if err := join(); err != nil {
		return err
	}
	r.expectShares("one member has every partition", members, "[6]")
	for _, step := range []func() error{func() error { return part(0) }, join, join} {
		if err := step(); err != nil {
			return err
		}
	}
	r.expectShares("three members share the partitions", members, "[2 2 2]")
	if err := part(3000); err != nil {
		return err
	}
	if err := members[0].Close(); err != nil {
		return err
	}
	members = members[1:]
	r.expectShares("a member leaves, the others take over", members, "[3 3]")
	if err := part(6000); err != nil {
		return err
	}
	until(func() bool { return len(seen.values()) >= 9000 })
	r.equal("nothing is lost over rebalances", len(seen.values()), 9000)
	for _, member := range members {
		if err := member.Close(); err != nil {
			return err
		}
	}
	return r.committedAreEnds(group, topic)
}

func (r *run) committedAreEnds(group, topic string) error {
	committed, err := r.client.Committed(group, topic)
	if err != nil {
		return err
	}
	ends, err := r.client.Ends(topic)
	if err != nil {
		return err
	}
	r.equal("committed offsets are the ends", committed, ends)
	again := &collector{}
	member, err := r.client.Member(group, topic, again.add)
	if err != nil {
		return err
	}
	until(func() bool { return len(member.Assigned()) == Partitions })
	time.Sleep(1500 * time.Millisecond)
	r.equal("a new member begins at what was committed", again.size(), 0)
	return member.Close()
}

func (r *run) byTime() error {
	topic, records, read := Name("times"), makeRecords(6000, "times"), &collector{}
	if err := r.client.Create(topic, Partitions); err != nil {
		return err
	}
	if err := r.client.Produce(topic, "none", records); err != nil {
		return err
	}
	offset, err := r.client.OffsetAt(topic, 2, records[400*Partitions+2].Time-1)
	if err != nil {
		return err
	}
	r.equal("the offset at a time", offset, int64(400))
	reader, err := r.client.Assigned(topic, map[int]int64{2: offset}, read.add)
	if err != nil {
		return err
	}
	until(func() bool { return read.size() >= 600 })
	found := read.all()
	r.check("read from that time on", len(found) == 600 &&
		found[0].Value == records[400*Partitions+2].Value, len(found))
	return reader.Close()
}

func (r *run) transactions() error {
	topic, source, group := Name("committed"), Name("source"), Name("group")
	for _, it := range []string{topic, source} {
		if err := r.client.Create(it, Partitions); err != nil {
			return err
		}
	}
	producer, err := r.client.Transactional(Name("transactional"))
	if err != nil {
		return err
	}
	if producer == nil {
		say("none", "transactions", "the client has none")
		return nil
	}
	records := makeRecords(4000, "committed")
	for i := range 4 {
		if err := producer.Begin(); err != nil {
			return err
		}
		if err := producer.Send(topic, records[i*1000:(i+1)*1000]); err != nil {
			return err
		}
		if i == 3 {
			if err := producer.SendOffsets(group, source, []int64{7, 8, 9}); err != nil {
				return err
			}
		}
		if err := producer.End(i != 1); err != nil {
			return err
		}
	}
	read := &collector{}
	member, err := r.client.Member(Name("group"), topic, read.add)
	if err != nil {
		return err
	}
	until(func() bool { return read.size() >= 3000 })
	time.Sleep(500 * time.Millisecond)
	wanted := append(append([]Record(nil), records[:1000]...), records[2000:]...)
	r.sameInOrder("committed transactions are read, aborted ones not", wanted, read.all())
	committed, err := r.client.Committed(group, source)
	if err != nil {
		return err
	}
	wantedOffsets := []int64{7, 8, 9, -1, -1, -1}
	r.equal("offsets sent with a transaction are committed", committed, wantedOffsets)
	if err := member.Close(); err != nil {
		return err
	}
	return producer.Close()
}

// Main runs every check against the client that `make` gives for a bootstrap address.
func Main(make func(bootstrap string) (Client, error)) {
	count, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	client, err := make(os.Args[1])
	if err != nil {
		say("FAIL", "the client starts", err)
		os.Exit(1)
	}
	r := &run{client: client, count: count}
	say("version", client.Version())
	r.attempt("codecs", r.codecs)
	r.attempt("assignment", r.assignment)
	r.attempt("sharing", r.sharing)
	r.attempt("byTime", r.byTime)
	r.attempt("transactions", r.transactions)
	if r.failed > 0 {
		os.Exit(1)
	}
}
