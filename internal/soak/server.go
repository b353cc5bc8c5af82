package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// A server is the ZooKeeper of one piece.
type server struct {
	address string
	where   string
	stop    func() error
}

func startServer(kind string) (*server, error) {
	switch kind {
	case "embedded":
		s, err := embedded.Start(embedded.Config{TickTime: sessionTimeout / 6, ContainerInterval: time.Second})
		if err != nil {
			return nil, err
		}
		address := s.ConnectString()
		return &server{address, "the embedded server at " + address + ", in this process", s.Close}, nil
	case "real":
		return startReal()
	default:
		return nil, fmt.Errorf("unknown server %q: it is embedded or real", kind)
	}
}

// startReal starts the server that tests would get. It ends with this process.
func startReal() (s *server, err error) {
	defer func() {
		if failure, ok := recover().(failure); ok {
			err = failure
		}
	}()
	address := ensemble.Real(program{}).ConnectString()
	return &server{address, "a real ZooKeeper at " + address, func() error { return nil }}, nil
}

// A program stands for a test to [ensemble.Real]. It has the methods that are called there.
type program struct{ testing.TB }

type failure struct{ error }

func (program) Helper()                   {}
func (program) Name() string              { return "soak" }
func (program) Cleanup(func())            {}
func (program) Logf(string, ...any)       {}
func (program) Skipf(f string, a ...any)  { panic(failure{fmt.Errorf(f, a...)}) }
func (program) Fatalf(f string, a ...any) { panic(failure{fmt.Errorf(f, a...)}) }

// counters returns the numbers that a server reports about itself.
func (s *server) counters() (map[string]float64, error) {
	address, _, _ := strings.Cut(s.address, "/")
	c, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, "mntr"); err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		return nil, err
	}

	counters := make(map[string]float64)
	for line := range strings.Lines(string(answer)) {
		var name string
		var value float64
		if n, _ := fmt.Sscanf(line, "zk_%s %f", &name, &value); n == 2 {
			counters[name] = value
		}
	}
	return counters, nil
}
