// Pulsar's own Go client as a process: integration/bridge/clients.py says how.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

const afterwards = 300 * time.Millisecond

type request struct {
	To           string
	Topic        string
	Count        int
	Patience     int
	Whole        bool
	Compacted    bool
	Start        []int64
	Key          string
	Subscription string
	Type         string
	Every        int64
}

type line struct {
	Ledger       int64             `json:"ledger"`
	Entry        int64             `json:"entry"`
	Batch        int32             `json:"batch"`
	Key          string            `json:"key"`
	Properties   map[string]string `json:"properties"`
	Published    int64             `json:"published"`
	Event        int64             `json:"event"`
	Size         int               `json:"size"`
	Sha256       string            `json:"sha256"`
	Acknowledged bool              `json:"acknowledged"`
}

type quiet struct{}

func (q quiet) SubLogger(log.Fields) log.Logger        { return q }
func (q quiet) WithFields(log.Fields) log.Entry        { return q }
func (q quiet) WithField(string, interface{}) log.Entry { return q }
func (q quiet) WithError(error) log.Entry              { return q }
func (quiet) Debug(...interface{})                     {}
func (quiet) Info(...interface{})                      {}
func (quiet) Warn(...interface{})                      {}
func (quiet) Error(args ...interface{})                { fmt.Println(args...) }
func (quiet) Debugf(string, ...interface{})            {}
func (quiet) Infof(string, ...interface{})             {}
func (quiet) Warnf(string, ...interface{})             {}
func (quiet) Errorf(f string, args ...interface{})     { fmt.Printf(f+"\n", args...) }

func milliseconds(at time.Time) int64 {
	if at.IsZero() || at.Unix() <= 0 && at.UnixMilli() <= 0 {
		return 0
	}
	return at.UnixMilli()
}

func described(message pulsar.Message, acknowledged bool) line {
	id, sum := message.ID(), sha256.Sum256(message.Payload())
	properties := message.Properties()
	if properties == nil {
		properties = map[string]string{}
	}
	return line{id.LedgerID(), id.EntryID(), id.BatchIdx(), message.Key(), properties,
		milliseconds(message.PublishTime()), milliseconds(message.EventTime()), len(message.Payload()),
		hex.EncodeToString(sum[:]), acknowledged}
}

func all(asked request, out *json.Encoder, next func(context.Context) (pulsar.Message, error), acknowledge func(pulsar.Message) error) string {
	for number := 0; number < asked.Count; number++ {
		waiting, cancel := context.WithTimeout(context.Background(), time.Duration(asked.Patience)*time.Second)
		message, err := next(waiting)
		cancel()
		if waiting.Err() == context.DeadlineExceeded {
			return "patience"
		}
		if err != nil {
			return err.Error()
		}
		acknowledged := asked.Every > 0 && message.ID().EntryID()%asked.Every != asked.Every-1
		if acknowledged {
			if err := acknowledge(message); err != nil {
				return err.Error()
			}
		}
		if err := out.Encode(described(message, acknowledged)); err != nil {
			return err.Error()
		}
	}
	if asked.Whole {
		waiting, cancel := context.WithTimeout(context.Background(), afterwards)
		defer cancel()
		if message, err := next(waiting); err == nil {
			return fmt.Sprintf("more: %v", message.ID())
		}
	}
	return "count"
}

func read(client pulsar.Client, asked request, out *json.Encoder) string {
	start := pulsar.EarliestMessageID()
	if len(asked.Start) == 3 {
		start = pulsar.NewMessageID(asked.Start[0], asked.Start[1], int32(asked.Start[2]), -1)
	}
	options := pulsar.ReaderOptions{Topic: asked.Topic, StartMessageID: start, StartMessageIDInclusive: true,
		ReadCompacted: asked.Compacted}
	if asked.Key != "" {
		options.Decryption = &pulsar.MessageDecryptionInfo{KeyReader: crypto.NewFileKeyReader("", asked.Key),
			ConsumerCryptoFailureAction: crypto.ConsumerCryptoFailureActionFail}
	}
	reader, err := client.CreateReader(options)
	if err != nil {
		return err.Error()
	}
	defer reader.Close()
	return all(asked, out, reader.Next, nil)
}

func consume(client pulsar.Client, asked request, out *json.Encoder) string {
	kind := pulsar.Shared
	if asked.Type == "Key_Shared" {
		kind = pulsar.KeyShared
	}
	options := pulsar.ConsumerOptions{Topic: asked.Topic, SubscriptionName: asked.Subscription, Type: kind,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, AckWithResponse: true,
		EnableBatchIndexAcknowledgment: true}
	if asked.Key != "" {
		options.Decryption = &pulsar.MessageDecryptionInfo{KeyReader: crypto.NewFileKeyReader("", asked.Key),
			ConsumerCryptoFailureAction: crypto.ConsumerCryptoFailureActionFail}
	}
	consumer, err := client.Subscribe(options)
	if err != nil {
		return err.Error()
	}
	defer consumer.Close()
	return all(asked, out, consumer.Receive, consumer.Ack)
}

func serve(client pulsar.Client, asked request) {
	file, err := os.Create(asked.To + ".part")
	if err != nil {
		panic(err)
	}
	out := json.NewEncoder(file)
	end := ""
	if asked.Subscription != "" {
		end = consume(client, asked, out)
	} else {
		end = read(client, asked, out)
	}
	if err := out.Encode(map[string]string{"end": end}); err != nil {
		panic(err)
	}
	if err := file.Close(); err != nil {
		panic(err)
	}
	if err := os.Rename(asked.To+".part", asked.To); err != nil {
		panic(err)
	}
}

func main() {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[1], OperationTimeout: 180 * time.Second, Logger: quiet{}})
	if err != nil {
		panic(err)
	}
	requests := bufio.NewReader(os.Stdin)
	for {
		text, err := requests.ReadString('\n')
		if err != nil {
			return
		}
		var asked request
		if err := json.Unmarshal([]byte(strings.TrimSpace(text)), &asked); err != nil {
			panic(err)
		}
		go serve(client, asked)
	}
}
