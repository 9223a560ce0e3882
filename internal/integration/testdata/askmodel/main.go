// Command askmodel asks a model three times with Anthropic's own client, tries
// to list files in between, and prints what came of it and its environment.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

func main() {
	client := anthropic.NewClient(option.WithMaxRetries(0)) // by its variables
	for i := range 3 {
		m, err := client.Messages.New(context.Background(), anthropic.MessageNewParams{
			Model: "m", MaxTokens: 10,
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))},
		})
		if err == nil {
			fmt.Println(i, "200", m.Content[0].Text)
		} else {
			fmt.Println(i, status(err), err)
		}
	}
	_, err := client.Beta.Files.List(context.Background(), anthropic.BetaFileListParams{})
	fmt.Println("files", status(err))
	for _, e := range os.Environ() {
		fmt.Println(e)
	}
}

func status(err error) int {
	var api *anthropic.Error
	if errors.As(err, &api) {
		return api.StatusCode
	}
	if err != nil {
		return 0
	}
	return 200
}
