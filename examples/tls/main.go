// TLS shows a client and a server that authenticate each other by certificates. A client without a
// certificate is refused, and so is a server whose certificate another CA has signed:
//
//	go run ./examples/tls
//
// The certificates are made in memory, and ZooKeeper runs inside the program.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := show(ctx, os.Stdout); err != nil {
		log.Fatal("tls: ", err)
	}
}

func show(ctx context.Context, out io.Writer) error {
	ours, err := newAuthority()
	if err != nil {
		return err
	}
	others, err := newAuthority()
	if err != nil {
		return err
	}
	serverCertificate, err := ours.issue("localhost")
	if err != nil {
		return err
	}
	clientCertificate, err := ours.issue("billing")
	if err != nil {
		return err
	}

	server, err := embedded.Start(embedded.Config{TLS: &tls.Config{
		Certificates: []tls.Certificate{serverCertificate},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    ours.pool(),
	}})
	if err != nil {
		return err
	}
	defer server.Close()

	for _, client := range []struct {
		what         string
		certificates []tls.Certificate
		roots        *x509.CertPool
		within       time.Duration
	}{
		{"with a certificate", []tls.Certificate{clientCertificate}, ours.pool(), time.Minute},
		{"without a certificate", nil, ours.pool(), 2 * time.Second},
		{"that trusts another CA", []tls.Certificate{clientCertificate}, others.pool(), 2 * time.Second},
	} {
		config := &tls.Config{Certificates: client.certificates, RootCAs: client.roots, ServerName: "localhost"}
		trying, cancel := context.WithTimeout(ctx, client.within)
		err := takeLock(trying, server.ConnectString(), config)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err() // Ctrl-C, which says nothing about certificates
		}
		if err == nil {
			fmt.Fprintf(out, "A client %s takes a lock.\n", client.what)
		} else {
			fmt.Fprintf(out, "A client %s does not: %v\n", client.what, err)
		}
	}
	return nil
}

func takeLock(ctx context.Context, servers string, config *tls.Config) error {
	client, err := protocol.Connect(ctx, servers, protocol.WithTLS(config))
	if err != nil {
		return err
	}
	defer client.Close()
	return lock.New(client, "/locks/report").Do(ctx, func(ctx context.Context, _ *lock.Lease) error { return ctx.Err() })
}
