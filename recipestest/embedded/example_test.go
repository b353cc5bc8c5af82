package embedded_test

import (
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// quiet keeps the client's log out of the example.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// An ephemeral node is deleted when its session ends, and its watches fire.
func Example() {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	connect := func() *zk.Conn {
		conn, _, err := zk.Connect([]string{server.ConnectString()}, 10*time.Second, zk.WithLogger(quiet{}))
		if err != nil {
			log.Fatal(err)
		}
		return conn
	}
	owner, watcher := connect(), connect()
	defer owner.Close()
	defer watcher.Close()

	if _, err := owner.Create("/mine", []byte("hello"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		log.Fatal(err)
	}
	data, stat, gone, err := watcher.GetW("/mine")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, says its owner\n", data)

	server.ExpireSession(stat.EphemeralOwner)
	event := <-gone
	fmt.Println(event.Path, "is gone:", event.Type == zk.EventNodeDeleted)
	// Output:
	// hello, says its owner
	// /mine is gone: true
}
