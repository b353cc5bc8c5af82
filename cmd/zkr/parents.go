package main

import "github.com/spf13/cobra"

func newQueueCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "queue", Short: "Queues"}
	cmd.AddCommand(newQueueWorkCommand(a))
	return cmd
}
