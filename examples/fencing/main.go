// Fencing shows what only a store can do, because a lock can't: keep out a former holder that
// doesn't know yet that it has lost the lock, and keep a job from being done twice. The store is
// SQLite. The statements are the same in other databases:
//
//	go run -C examples/fencing .
//	go run -C examples/fencing . -servers zk1:2181,zk2:2181,zk3:2181
//
// The first runs on a ZooKeeper inside the program. The second leaves nothing on the ensemble.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/zkrecipes/zkrecipes/examples/internal/sandbox"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func main() {
	servers := flag.String("servers", "", "`host:port,...` of an ensemble (default: a ZooKeeper inside this program)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *servers); err != nil {
		log.Fatal("fencing: ", err)
	}
}

func run(ctx context.Context, out io.Writer, servers string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	box, err := sandbox.Open(servers, "fencing")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	db, err := sql.Open("sqlite3", ":memory:")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // otherwise each connection would have its own database
	_, err = db.ExecContext(ctx, `
		CREATE TABLE price (amount INTEGER, token INTEGER); INSERT INTO price VALUES (100, 0);
		CREATE TABLE invoices (day TEXT, token INTEGER);    CREATE TABLE done (job TEXT PRIMARY KEY)`)
	if err != nil {
		return err
	}

	var clients [2]*protocol.Client // of two processes
	for i := range clients {
		if clients[i], err = protocol.Connect(ctx, box.Servers, protocol.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
			return err
		}
		defer clients[i].Close()
	}
	fmt.Fprintf(out, "Two processes and a database, %v.\n\n", box)
	if err := lateWrite(ctx, out, box, db, clients[0], clients[1]); err != nil {
		return err
	}
	return secondRun(ctx, out, db, clients[0], clients[1])
}

// lateWrite has a process lose a lock between its look and its write.
func lateWrite(ctx context.Context, out io.Writer, box *sandbox.Sandbox, db *sql.DB, first, second *protocol.Client) error {
	mutex := lock.New(second, "/locks/price")
	former, err := lock.New(first, "/locks/price").Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "The first process holds the lock, and is paused before it writes.")
	ended, err := box.Expire(ctx, first) // the servers do that if the pause is long
	if err == nil && !ended {
		err = mutex.Break(ctx, former.Node()) // an ensemble's sessions are not ours to end
	}

	if err != nil {
		return err
	}

	err = mutex.Do(ctx, func(ctx context.Context, l *lock.Lease) error {
		fmt.Fprintln(out, "The second process holds the lock, and writes 120:", outcome(setPrice(ctx, db, 120, l.Token())))
		_, err := l.Multi(ctx, &zk.CreateRequest{Path: "/locks/changed", Data: []byte("120")})
		return err
	})
	if err != nil {
		return err
	}

	fmt.Fprintln(out, "The first process goes on, and writes 90:", outcome(setPrice(ctx, db, 90, former.Token())))
	_, err = former.Multi(ctx, &zk.SetDataRequest{Path: "/locks/changed", Data: []byte("90"), Version: -1})
	fmt.Fprintln(out, "It writes to ZooKeeper, by Multi:", outcome(err))
	return nil
}

// outcome describes the result of a write.
func outcome(err error) string {
	if err != nil {
		return "refused, " + err.Error()
	}
	return "done"
}

var errFormer = errors.New("a greater token was seen")

// setPrice keeps out former holders: the row has the greatest token of any write.
func setPrice(ctx context.Context, db *sql.DB, amount int, token int64) error {
	result, err := db.ExecContext(ctx, `UPDATE price SET amount = ?, token = ? WHERE token <= ?`, amount, token, token)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); n == 0 {
		return errors.Join(err, errFormer)
	}
	return nil
}

var (
	errDied = errors.New("the process has died")
	errDone = errors.New("the job is done already")
)

// secondRun has a process die after it has done a job, and before ZooKeeper has recorded that.
func secondRun(ctx context.Context, out io.Writer, db *sql.DB, first, second *protocol.Client) error {
	const day = "2030-01-31"
	_, err := once.New(first, "/once/invoices").Do(ctx, day, func(ctx context.Context, r *once.Run) error {
		fmt.Fprintln(out, "\nThe first process writes the invoice, and dies:", outcome(invoice(ctx, db, day, r.Token())))
		return errDied
	})
	if !errors.Is(err, errDied) {
		return fmt.Errorf("the first run: %w", err)
	}
	_, err = once.New(second, "/once/invoices").Do(ctx, day, func(ctx context.Context, r *once.Run) error {
		fmt.Fprintln(out, "The second process runs the job again, with a greater token:", outcome(invoice(ctx, db, day, r.Token())))
		return nil
	})
	if err != nil {
		return err
	}
	var invoices int
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM invoices`).Scan(&invoices)
	fmt.Fprintln(out, "Invoices:", invoices)
	return err
}

// invoice writes an invoice, and records the job in the same transaction. A token wouldn't help
// here, because the second run has a greater token. The primary key does.
func invoice(ctx context.Context, db *sql.DB, day string, token int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	result, err := tx.ExecContext(ctx, `INSERT INTO done VALUES (?) ON CONFLICT DO NOTHING`, "invoice "+day)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); n == 0 {
		return errors.Join(err, errDone)
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO invoices VALUES (?, ?)`, day, token); err != nil {
		return err
	}
	return tx.Commit()
}
