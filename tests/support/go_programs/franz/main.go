// Writes one record and reads it back through a group, as whoever the options say. The last line it prints is the record's offset.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var (
	bootstrap     = flag.String("bootstrap", "localhost:9092", "")
	topic         = flag.String("topic", "", "")
	group         = flag.String("group", "", "")
	value         = flag.String("value", "", "")
	transactional = flag.String("transactional-id", "", "the record is written in a transaction, and read once it is committed")
	mechanism     = flag.String("mechanism", "", "of SASL; none if empty")
	user          = flag.String("user", "", "")
	password      = flag.String("password", "", "or token")
	authority     = flag.String("ca", "", "TLS, if it is given")
	certificate   = flag.String("certificate", "", "")
	key           = flag.String("key", "", "")
)

func main() {
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	offset, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(offset)
}

func run(ctx context.Context) (int64, error) {
	options, err := access()
	if err != nil {
		return 0, err
	}
	options = append(options, kgo.SeedBrokers(*bootstrap), kgo.RetryTimeout(20*time.Second), kgo.AllowAutoTopicCreation())
	offset, err := write(ctx, options)
	if err != nil {
		return 0, fmt.Errorf("not written: %w", err)
	}
	return offset, read(ctx, options, offset)
}

func access() ([]kgo.Opt, error) {
	var options []kgo.Opt
	switch *mechanism {
	case "":
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: *user, Pass: *password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: *user, Pass: *password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: *user, Pass: *password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: *password}.AsMechanism()))
	default:
		return nil, fmt.Errorf("unknown mechanism %q", *mechanism)
	}
	if *authority == "" {
		return options, nil
	}
	trusted, err := os.ReadFile(*authority)
	if err != nil {
		return nil, err
	}
	settings := &tls.Config{RootCAs: x509.NewCertPool()}
	settings.RootCAs.AppendCertsFromPEM(trusted)
	if *certificate != "" {
		own, err := tls.LoadX509KeyPair(*certificate, *key)
		if err != nil {
			return nil, err
		}
		settings.Certificates = []tls.Certificate{own}
	}
	return append(options, kgo.DialTLSConfig(settings)), nil
}

func write(ctx context.Context, options []kgo.Opt) (int64, error) {
	if *transactional != "" {
		options = append(options, kgo.TransactionalID(*transactional))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	if *transactional != "" {
		if err := client.BeginTransaction(); err != nil {
			return 0, err
		}
	}
	record, err := client.ProduceSync(ctx, &kgo.Record{Topic: *topic, Value: []byte(*value)}).First()
	if err != nil {
		return 0, err
	}
	if *transactional != "" {
		if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
			return 0, err
		}
	}
	return record.Offset, nil
}

func read(ctx context.Context, options []kgo.Opt, offset int64) error {
	client, err := kgo.NewClient(append(options,
		kgo.ConsumerGroup(*group),
		kgo.ConsumeTopics(*topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)...)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			return fmt.Errorf("not read: %w", errs[0].Err)
		}
		for _, record := range fetches.Records() {
			if record.Offset == offset && string(record.Value) == *value {
				return client.CommitUncommittedOffsets(ctx)
			}
		}
	}
}
