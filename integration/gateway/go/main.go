// Pulsar's own Go client as a process: integration/gateway/clients.py says how.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

type request struct {
	Do           string          `json:"do"`
	As           string          `json:"as"`
	Of           string          `json:"of"`
	Topic        string          `json:"topic"`
	Topics       []string        `json:"topics"`
	Pattern      string          `json:"pattern"`
	Start        json.RawMessage `json:"start"`
	To           json.RawMessage `json:"to"`
	Inclusive    bool            `json:"inclusive"`
	Compacted    bool            `json:"compacted"`
	Queue        int             `json:"queue"`
	Keys         string          `json:"keys"`
	Subscription string          `json:"subscription"`
	Type         string          `json:"type"`
	Position     string          `json:"position"`
	Name         string          `json:"name"`
	NackMs       int             `json:"nack_ms"`
	AckTimeoutMs int             `json:"ack_timeout_ms"`
	BatchIndex   bool            `json:"batch_index"`
	Ranges       [][]int         `json:"ranges"`
	Count        int             `json:"count"`
	Ms           int             `json:"ms"`
	Ids          [][]int64       `json:"ids"`
	Cumulative   bool            `json:"cumulative"`
}

type described struct {
	Id           []int64           `json:"id"`
	Topic        string            `json:"topic"`
	Sha256       string            `json:"sha256"`
	Size         int               `json:"size"`
	Key          string            `json:"key"`
	Ordering     string            `json:"ordering"`
	Properties   map[string]string `json:"properties"`
	Published    int64             `json:"published"`
	Event        int64             `json:"event"`
	Redeliveries uint32            `json:"redeliveries"`
	Producer     string            `json:"producer"`
	Schema       string            `json:"schema"`
}

type taken struct {
	Messages []described `json:"messages"`
	End      string      `json:"end"`
}

type quiet struct{}

func (q quiet) SubLogger(log.Fields) log.Logger         { return q }
func (q quiet) WithFields(log.Fields) log.Entry         { return q }
func (q quiet) WithField(string, interface{}) log.Entry { return q }
func (q quiet) WithError(error) log.Entry               { return q }
func (quiet) Debug(...interface{})                      {}
func (quiet) Info(...interface{})                       {}
func (quiet) Warn(...interface{})                       {}
func (quiet) Error(args ...interface{})                 { fmt.Fprintln(os.Stderr, args...) }
func (quiet) Debugf(string, ...interface{})             {}
func (quiet) Infof(string, ...interface{})              {}
func (quiet) Warnf(string, ...interface{})              {}
func (quiet) Errorf(f string, args ...interface{})      { fmt.Fprintf(os.Stderr, f+"\n", args...) }

// A programme has what it was asked for: readers and consumers by name, and of each what it received.
type programme struct {
	client    pulsar.Client
	readers   map[string]pulsar.Reader
	consumers map[string]pulsar.Consumer
	received  map[string]map[string]pulsar.Message
}

func said(id pulsar.MessageID) []int64 {
	return []int64{id.LedgerID(), id.EntryID(), int64(id.PartitionIdx()), int64(id.BatchIdx())}
}

func idOf(text json.RawMessage) pulsar.MessageID {
	var name string
	if json.Unmarshal(text, &name) == nil {
		if name == "latest" {
			return pulsar.LatestMessageID()
		}
		return pulsar.EarliestMessageID()
	}
	var at []int64
	if err := json.Unmarshal(text, &at); err != nil {
		panic(err)
	}
	return pulsar.NewMessageID(at[0], at[1], int32(at[3]), int32(at[2]))
}

func milliseconds(at time.Time) int64 {
	if at.IsZero() || at.UnixMilli() < 0 {
		return 0
	}
	return at.UnixMilli()
}

func describe(message pulsar.Message) described {
	sum := sha256.Sum256(message.Payload())
	properties := message.Properties()
	if properties == nil {
		properties = map[string]string{}
	}
	return described{said(message.ID()), message.Topic(), hex.EncodeToString(sum[:])[:16], len(message.Payload()),
		message.Key(), message.OrderingKey(), properties, milliseconds(message.PublishTime()),
		milliseconds(message.EventTime()), message.RedeliveryCount(), message.ProducerName(),
		hex.EncodeToString(message.SchemaVersion())}
}

func (p *programme) decryption(keys string) *pulsar.MessageDecryptionInfo {
	if keys == "" {
		return nil
	}
	return &pulsar.MessageDecryptionInfo{KeyReader: crypto.NewFileKeyReader("", keys),
		ConsumerCryptoFailureAction: crypto.ConsumerCryptoFailureActionFail}
}

func (p *programme) reader(asked request) error {
	made, err := p.client.CreateReader(pulsar.ReaderOptions{Topic: asked.Topic, StartMessageID: idOf(asked.Start),
		StartMessageIDInclusive: asked.Inclusive, ReadCompacted: asked.Compacted, ReceiverQueueSize: asked.Queue,
		Decryption: p.decryption(asked.Keys)})
	if err == nil {
		p.readers[asked.As], p.received[asked.As] = made, map[string]pulsar.Message{}
	}
	return err
}

func (p *programme) consumer(asked request) error {
	kinds := map[string]pulsar.SubscriptionType{"Exclusive": pulsar.Exclusive, "Shared": pulsar.Shared,
		"Failover": pulsar.Failover, "Key_Shared": pulsar.KeyShared}
	options := pulsar.ConsumerOptions{Topics: asked.Topics, TopicsPattern: asked.Pattern,
		SubscriptionName: asked.Subscription, Type: kinds[asked.Type], Name: asked.Name,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, ReceiverQueueSize: asked.Queue,
		NackRedeliveryDelay: time.Duration(asked.NackMs) * time.Millisecond, AckWithResponse: true,
		EnableBatchIndexAcknowledgment: asked.BatchIndex, Decryption: p.decryption(asked.Keys),
		StartMessageIDInclusive: asked.Inclusive, ReadCompacted: asked.Compacted}
	if len(asked.Topics) == 1 {
		options.Topic, options.Topics = asked.Topics[0], nil
	}
	if asked.Position == "Latest" {
		options.SubscriptionInitialPosition = pulsar.SubscriptionPositionLatest
	}
	if len(asked.Ranges) > 0 {
		var ends []int
		for _, each := range asked.Ranges {
			ends = append(ends, each...)
		}
		policy, err := pulsar.NewKeySharedPolicySticky(ends)
		if err != nil {
			return err
		}
		options.KeySharedPolicy = policy
	}
	made, err := p.client.Subscribe(options)
	if err == nil {
		p.consumers[asked.As], p.received[asked.As] = made, map[string]pulsar.Message{}
	}
	return err
}

func (p *programme) take(asked request) (taken, error) {
	found := taken{[]described{}, "count"}
	for len(found.Messages) < asked.Count {
		waiting, cancel := context.WithTimeout(context.Background(), time.Duration(asked.Ms)*time.Millisecond)
		var message pulsar.Message
		var err error
		if reader, ok := p.readers[asked.Of]; ok {
			message, err = reader.Next(waiting)
		} else {
			message, err = p.consumers[asked.Of].Receive(waiting)
		}
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			found.End = "nothing"
			break
		}
		if err != nil {
			return found, err
		}
		one := describe(message)
		p.received[asked.Of][fmt.Sprint(one.Id)] = message
		found.Messages = append(found.Messages, one)
	}
	return found, nil
}

func (p *programme) ack(asked request) error {
	for _, id := range asked.Ids {
		message := p.received[asked.Of][fmt.Sprint(id)]
		acknowledge := p.consumers[asked.Of].Ack
		if asked.Cumulative {
			acknowledge = p.consumers[asked.Of].AckCumulative
		}
		if err := acknowledge(message); err != nil {
			return err
		}
	}
	time.Sleep(200 * time.Millisecond)
	return nil
}

func (p *programme) seek(asked request) error {
	var at int64
	isTime := json.Unmarshal(asked.To, &at) == nil
	if reader, ok := p.readers[asked.Of]; ok {
		if isTime {
			return reader.SeekByTime(time.UnixMilli(at))
		}
		return reader.Seek(idOf(asked.To))
	}
	if isTime {
		return p.consumers[asked.Of].SeekByTime(time.UnixMilli(at))
	}
	return p.consumers[asked.Of].Seek(idOf(asked.To))
}

func (p *programme) table(asked request) (map[string]string, error) {
	table, err := p.client.CreateTableView(pulsar.TableViewOptions{Topic: asked.Topic,
		Schema: pulsar.NewBytesSchema(nil), SchemaValueType: reflect.TypeOf([]byte{})})
	if err != nil {
		return nil, err
	}
	defer table.Close()
	found := map[string]string{}
	for key, value := range table.Entries() {
		data, ok := value.([]byte)
		if pointer, is := value.(*[]byte); is && !ok {
			data = *pointer
		}
		sum := sha256.Sum256(data)
		found[key] = hex.EncodeToString(sum[:])[:16]
	}
	return found, nil
}

func (p *programme) serve(asked request) (interface{}, error) {
	consumer := p.consumers[asked.Of]
	switch asked.Do {
	case "reader":
		return nil, p.reader(asked)
	case "consumer":
		return nil, p.consumer(asked)
	case "take":
		return p.take(asked)
	case "ack":
		return nil, p.ack(asked)
	case "nack":
		for _, id := range asked.Ids {
			consumer.Nack(p.received[asked.Of][fmt.Sprint(id)])
		}
		return nil, nil
	case "seek":
		return nil, p.seek(asked)
	case "available":
		return p.readers[asked.Of].HasNext(), nil
	case "last":
		ids, err := consumer.GetLastMessageIDs()
		found := [][]int64{}
		for _, id := range ids {
			found = append(found, said(id))
		}
		return found, err
	case "unsubscribe":
		return nil, consumer.Unsubscribe()
	case "close":
		if reader, ok := p.readers[asked.Of]; ok {
			reader.Close()
			delete(p.readers, asked.Of)
		} else {
			consumer.Close()
			delete(p.consumers, asked.Of)
		}
		return nil, nil
	case "table":
		return p.table(asked)
	case "partitions":
		return p.client.TopicPartitions(asked.Topic)
	}
	panic(asked.Do)
}

func main() {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[1], OperationTimeout: 60 * time.Second,
		Logger: quiet{}})
	if err != nil {
		panic(err)
	}
	p := &programme{client, map[string]pulsar.Reader{}, map[string]pulsar.Consumer{},
		map[string]map[string]pulsar.Message{}}
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked request
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		answer := map[string]interface{}{}
		if found, err := p.serve(asked); err != nil {
			var known *pulsar.Error
			answer["error"] = "error"
			if errors.As(err, &known) {
				answer["error"] = fmt.Sprintf("error %d", known.Result())
			}
		} else {
			answer["answer"] = found
		}
		if err := answers.Encode(answer); err != nil {
			panic(err)
		}
	}
}
