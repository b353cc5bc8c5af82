// Package ui serves a page that shows the recipes below a path of ZooKeeper live.
//
// One [Hub] serves all browsers. Its survey.Viewer watches everything that it has read. If nothing
// changes, it costs one Sync every two seconds while there is a browser, and nothing otherwise. The
// hub keeps the present state as rows with versions. A browser gets the rows that have changed
// since its version. So a slow browser gets fewer and larger messages and costs no memory.
//
// [Hub.Handler] guards the page: see [Access].
package ui

import (
	"context"
	"embed"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/protocol"
)

//go:embed page
var page embed.FS

// A Config says what a Hub shows and how often it looks.
type Config struct {
	Client  *protocol.Client
	Servers string // the name of the ensemble on the page
	Path    string

	Interval time.Duration // the least time between two looks
	Idle     time.Duration // the same without a browser; 0 is never
	Rate     int           // the most requests a second on average
	Nodes    int           // the most nodes to list; 0 is the default of package survey
	Limit    int           // the most contenders of a line, or elements of a queue, to read

	Exporter bool // serve metrics but no page

	// Break breaks or revokes a contender for a browser. If it is nil, browsers can only look.
	Break func(context.Context, Deed) error
}

// A Deed is a request of a browser to break or revoke a contender.
type Deed struct {
	Verb  string // "break" or "revoke"
	Path  string
	Node  string // the node's name below the path
	Since time.Time

	Who, By, Reason string // the owner, the browser's address, and the reason
}

// view has the methods of survey.Viewer that a Hub needs.
type view interface {
	Look(ctx context.Context, queues bool) (*survey.Place, error)
	Changed() bool
	Confirm(ctx context.Context) error
	Ended(path string) survey.End
	Requests() int64
}
