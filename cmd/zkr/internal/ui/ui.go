// Package ui serves a page that shows what stands below a path of ZooKeeper, and follows it live.
//
// One [Hub] looks, however many browsers look at it. A survey.Viewer watches what it has read, so a
// tree in which nothing changes costs one Sync every two seconds while there is a browser, and
// nothing while there is none. The hub keeps the present state as rows with versions. Each browser
// is sent the rows that have changed since the version that it has: a slow one gets fewer and
// larger messages, and costs no memory.
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

// A Config says what a Hub shows, and how often it looks.
type Config struct {
	Client  *protocol.Client
	Servers string // as the page shows them
	Path    string

	Interval time.Duration // between two looks, at least
	Idle     time.Duration // likewise, while there is no browser; 0 is never
	Rate     int           // how many requests a second looks may cost on average
	Nodes    int           // how many nodes are listed; 0 is the default of package survey
	Limit    int           // how many contenders of each line, and elements of each queue, are read

	Exporter bool // there are only metrics, and no page

	// Break, if it is not nil, lets browsers take away what a contender has, and ask for it back.
	Break func(context.Context, Deed) error
}

// A Deed is what a browser asks to be done to a contender.
type Deed struct {
	Verb  string // "break" or "revoke"
	Path  string
	Node  string // its name below the path
	Since time.Time

	Who, By, Reason string // whose it is, from which address this is asked, and why
}

// view is what a Hub needs of a survey.Viewer.
type view interface {
	Look(ctx context.Context, queues bool) (*survey.Place, error)
	Changed() bool
	Confirm(ctx context.Context) error
	Ended(path string) survey.End
	Requests() int64
}
