package layout

import (
	"fmt"
	"log/slog"
)

// A SessionID is the ID of a session as it is written everywhere: 0x and hex digits.
type SessionID int64

func (id SessionID) String() string { return fmt.Sprintf("%#x", uint64(id)) }

// LogValue makes every handler write it so.
func (id SessionID) LogValue() slog.Value { return slog.StringValue(id.String()) }
