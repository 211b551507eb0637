// CUDA graphs: nodes in the order in which they were added.
//
// A launch makes a task for each node. Bodies of conditional nodes never run,
// because no kernel sets their handle.
#include "driver.h"

static uint32_t next_graph = 1;
static uint64_t next_node = 1;

CUgraphNode add_node(CUgraph graph, CUgraphNodeType type, const Work *work,
                     const CUgraphNode *before, size_t num_before) {
  CUgraphNode node = calloc(1, sizeof *node);
  node->type = type;
  if (work) node->work = *work;
  node->work.node = (uint64_t)graph->id << 32 |
                    __atomic_fetch_add(&next_node, 1, __ATOMIC_RELAXED);
  node->before = malloc((num_before + 1) * sizeof *node->before);
  if (num_before) memcpy(node->before, before, num_before * sizeof *before);
  node->num_before = num_before;
  if (graph->num_nodes == graph->capacity)
    graph->nodes = realloc(graph->nodes, (graph->capacity =
                                              2 * graph->capacity + 16) *
                                             sizeof *graph->nodes);
  return graph->nodes[graph->num_nodes++] = node;
}

Task *launch_graph(CUgraph graph, Task *before, uint32_t stream, int device,
                   uint32_t correlation) {
  Task **tasks = calloc(graph->num_nodes + 1, sizeof *tasks);
  size_t num_tasks = 0;
  for (size_t i = 0; i < graph->num_nodes; i++) {
    CUgraphNode node = graph->nodes[i];
    Task **after = malloc((node->num_before + 1) * sizeof *after);
    for (size_t k = 0; k < node->num_before; k++)
      after[k] = node->before[k]->task;
    after[node->num_before] = before;
    size_t num_after = node->num_before + 1;
    Work work = node->is_disabled ? (Work){.kind = TASK_MARKER} : node->work;
    work.device = device;
    work.stream = stream;
    work.correlation = correlation;
    work.graph = graph->id;
    Task *task = submit(&work, after, num_after);
    if (node->child && !node->is_disabled) {
      Task *start = task;
      task = launch_graph(node->child, start, stream, device, correlation);
      release(start);
    }
    node->task = tasks[num_tasks++] = task;
    free(after);
  }
  tasks[num_tasks++] = before;
  Work work = {.kind = TASK_MARKER, .device = device, .stream = stream};
  Task *last = submit(&work, tasks, num_tasks);
  for (size_t i = 0; i + 1 < num_tasks; i++) release(tasks[i]);
  free(tasks);
  return last;
}

static CUgraph copy_graph(CUgraph graph) {
  CUgraph copy;
  cuGraphCreate(&copy, 0);
  for (size_t i = 0; i < graph->num_nodes; i++) {
    CUgraphNode from = graph->nodes[i];
    CUgraphNode node =
        add_node(copy, from->type, &from->work, from->before, from->num_before);
    for (size_t k = 0; k < from->num_before; k++)
      for (size_t j = 0; j < i; j++)
        if (graph->nodes[j] == from->before[k]) node->before[k] = copy->nodes[j];
    node->kernel_parameters = from->kernel_parameters;
    node->is_disabled = from->is_disabled;
    // A child is copied when added, and again with its graph.
    node->originals[0] = from;
    node->originals[1] = from->originals[0];
    if (from->child) node->child = copy_graph(from->child);
  }
  return copy;
}

// The copy of a node in a copy of its graph, or of a child graph's node.
static CUgraphNode in_copy(CUgraph copy, CUgraphNode node) {
  for (size_t i = 0; i < copy->num_nodes; i++) {
    CUgraphNode found = copy->nodes[i];
    if (found->originals[0] == node || found->originals[1] == node ||
        found == node)
      return found;
    if (found->child && (found = in_copy(found->child, node))) return found;
  }
  return NULL;
}

API CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
  (void)flags;
  *graph = calloc(1, sizeof **graph);
  (*graph)->id = __atomic_fetch_add(&next_graph, 1, __ATOMIC_RELAXED);
  return CUDA_SUCCESS;
}
API CUresult cuGraphDestroy(CUgraph graph) {
  for (size_t i = 0; i < graph->num_nodes; i++) {
    if (graph->nodes[i]->child) cuGraphDestroy(graph->nodes[i]->child);
    free(graph->nodes[i]->before);
    free(graph->nodes[i]);
  }
  free(graph->nodes);
  free(graph);
  return CUDA_SUCCESS;
}
API CUresult cuGraphClone(CUgraph *copy, CUgraph graph) {
  *copy = copy_graph(graph);
  return CUDA_SUCCESS;
}
API CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                         unsigned long long flags) {
  (void)flags;
  *exec = calloc(1, sizeof **exec);
  (*exec)->graph = copy_graph(graph);
  (*exec)->graph->id = graph->id;
  return CUDA_SUCCESS;
}
API CUresult cuGraphExecDestroy(CUgraphExec exec) {
  cuGraphDestroy(exec->graph);  // Tasks have copies of everything they need.
  free(exec);
  return CUDA_SUCCESS;
}
API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                  CUgraphExecUpdateResultInfo *result) {
  memset(result, 0, sizeof *result);
  cuGraphDestroy(exec->graph);
  exec->graph = copy_graph(graph);
  exec->graph->id = graph->id;
  return CUDA_SUCCESS;
}
API CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path,
                                  unsigned flags) {
  (void)graph, (void)flags;
  FILE *file = fopen(path, "w");
  if (!file) return CUDA_ERROR_INVALID_VALUE;
  fputs("digraph {}\n", file);
  fclose(file);
  return CUDA_SUCCESS;
}

// --- nodes

static void set_kernel(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p) {
  node->kernel_parameters = *p;
  node->work = (Work){.kind = TASK_KERNEL, .node = node->work.node};
  node->work.kernel.function = p->func ? p->func : (CUfunction)p->kern;
  node->work.kernel.shared_bytes = p->sharedMemBytes;
  unsigned grid[] = {p->gridDimX, p->gridDimY, p->gridDimZ};
  unsigned block[] = {p->blockDimX, p->blockDimY, p->blockDimZ};
  memcpy(node->work.kernel.grid, grid, sizeof grid);
  memcpy(node->work.kernel.block, block, sizeof block);
}
static void set_memset(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p) {
  node->work = (Work){.kind = TASK_SET, .node = node->work.node};
  node->work.set.to = p->dst;
  node->work.set.value = p->value;
  node->work.set.element_bytes = p->elementSize;
  node->work.set.width = p->width;
  node->work.set.height = p->height;
  node->work.set.pitch = p->pitch;
}
static void set_copy(CUgraphNode node, const CUDA_MEMCPY3D *p) {
  node->work = (Work){.kind = TASK_COPY, .copy = *p, .node = node->work.node};
}

API CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph,
                                     const CUgraphNode *before, size_t num,
                                     const CUDA_KERNEL_NODE_PARAMS *p) {
  *node = add_node(graph, CU_GRAPH_NODE_TYPE_KERNEL, NULL, before, num);
  set_kernel(*node, p);
  return CUDA_SUCCESS;
}
API CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph,
                                  const CUgraphNode *before, size_t num,
                                  const CUDA_MEMCPY3D *p, CUcontext context) {
  (void)context;
  *node = add_node(graph, CU_GRAPH_NODE_TYPE_MEMCPY, NULL, before, num);
  set_copy(*node, p);
  return CUDA_SUCCESS;
}
API CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph,
                                  const CUgraphNode *before, size_t num,
                                  const CUDA_MEMSET_NODE_PARAMS *p,
                                  CUcontext context) {
  (void)context;
  *node = add_node(graph, CU_GRAPH_NODE_TYPE_MEMSET, NULL, before, num);
  set_memset(*node, p);
  return CUDA_SUCCESS;
}
API CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph,
                                 const CUgraphNode *before, size_t num) {
  *node = add_node(graph, CU_GRAPH_NODE_TYPE_EMPTY, NULL, before, num);
  return CUDA_SUCCESS;
}
API CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph,
                                      const CUgraphNode *before, size_t num,
                                      CUgraph child) {
  *node = add_node(graph, CU_GRAPH_NODE_TYPE_GRAPH, NULL, before, num);
  (*node)->child = copy_graph(child);
  return CUDA_SUCCESS;
}

static CUresult set_node(CUgraphNode node, const CUgraphNodeParams *p) {
  switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      set_kernel(node, &(CUDA_KERNEL_NODE_PARAMS){
                           .func = p->kernel.func,
                           .gridDimX = p->kernel.gridDimX,
                           .gridDimY = p->kernel.gridDimY,
                           .gridDimZ = p->kernel.gridDimZ,
                           .blockDimX = p->kernel.blockDimX,
                           .blockDimY = p->kernel.blockDimY,
                           .blockDimZ = p->kernel.blockDimZ,
                           .sharedMemBytes = p->kernel.sharedMemBytes,
                           .kern = p->kernel.kern});
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      set_copy(node, &p->memcpy.copyParams);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      set_memset(node, &(CUDA_MEMSET_NODE_PARAMS){
                           .dst = p->memset.dst,
                           .pitch = p->memset.pitch,
                           .value = p->memset.value,
                           .elementSize = p->memset.elementSize,
                           .width = p->memset.width,
                           .height = p->memset.height});
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      node->child = p->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE
                        ? p->graph.graph
                        : copy_graph(p->graph.graph);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    default:
      say(1, "missing: graph nodes of type %d", p->type);
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}
API CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph,
                               const CUgraphNode *before,
                               const CUgraphEdgeData *edges, size_t num,
                               CUgraphNodeParams *p) {
  (void)edges;
  if (p->type != CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    *node = add_node(graph, p->type, NULL, before, num);
    return set_node(*node, p);
  }
  *node = add_node(graph, CU_GRAPH_NODE_TYPE_EMPTY, NULL, before, num);
  CUgraph *bodies = calloc(p->conditional.size, sizeof *bodies);
  for (unsigned i = 0; i < p->conditional.size; i++)
    cuGraphCreate(&bodies[i], 0);
  p->conditional.phGraph_out = bodies;
  return CUDA_SUCCESS;
}
API CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle,
                                            CUgraph graph, CUcontext context,
                                            unsigned value, unsigned flags) {
  (void)graph, (void)context, (void)value, (void)flags;
  static CUgraphConditionalHandle next = 1;
  *handle = next++;
  return CUDA_SUCCESS;
}
#define OF_EXEC(exec, node)                                            \
  if (!(node = in_copy((exec)->graph, node))) return CUDA_ERROR_INVALID_VALUE
API CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      CUgraphNodeParams *p) {
  OF_EXEC(exec, node);
  return set_node(node, p);
}
API CUresult cuGraphExecKernelNodeSetParams_v2(
    CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p) {
  OF_EXEC(exec, node);
  set_kernel(node, p);
  return CUDA_SUCCESS;
}
API CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_MEMCPY3D *p,
                                            CUcontext context) {
  (void)context;
  OF_EXEC(exec, node);
  set_copy(node, p);
  return CUDA_SUCCESS;
}
API CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_MEMSET_NODE_PARAMS *p,
                                            CUcontext context) {
  (void)context;
  OF_EXEC(exec, node);
  set_memset(node, p);
  return CUDA_SUCCESS;
}
API CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec,
                                                CUgraphNode node,
                                                CUgraph child) {
  OF_EXEC(exec, node);
  cuGraphDestroy(node->child);
  node->child = copy_graph(child);
  return CUDA_SUCCESS;
}
API CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node,
                                   unsigned is_enabled) {
  OF_EXEC(exec, node);
  node->is_disabled = !is_enabled;
  return CUDA_SUCCESS;
}
API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node,
                                           CUDA_KERNEL_NODE_PARAMS *p) {
  *p = node->kernel_parameters;
  return CUDA_SUCCESS;
}
API CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  (void)to, (void)from;
  return CUDA_SUCCESS;
}
API CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
  *type = node->type;
  return CUDA_SUCCESS;
}
API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *before,
                                           CUgraphEdgeData *edges,
                                           size_t *num) {
  if (edges) memset(edges, 0, node->num_before * sizeof *edges);
  if (before)
    memcpy(before, node->before, node->num_before * sizeof *before);
  *num = node->num_before;
  return CUDA_SUCCESS;
}
API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *num) {
  if (!nodes) {
    *num = graph->num_nodes;
    return CUDA_SUCCESS;
  }
  if (*num > graph->num_nodes) *num = graph->num_nodes;
  memcpy(nodes, graph->nodes, *num * sizeof *nodes);
  return CUDA_SUCCESS;
}
API CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes,
                                 size_t *num) {
  size_t num_roots = 0;
  for (size_t i = 0; i < graph->num_nodes; i++) {
    if (graph->nodes[i]->num_before) continue;
    if (nodes && num_roots < *num) nodes[num_roots] = graph->nodes[i];
    num_roots++;
  }
  *num = num_roots;
  return CUDA_SUCCESS;
}

// --- capture

CUresult capture(CUstream stream, const Work *work) {
  static const CUgraphNodeType types[] = {
      [TASK_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
      [TASK_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
      [TASK_SET] = CU_GRAPH_NODE_TYPE_MEMSET,
      [TASK_HOST] = CU_GRAPH_NODE_TYPE_HOST,
      [TASK_WRITE] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
      [TASK_WAIT_VALUE] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
  };
  CUgraphNode node = add_node(stream->capture, types[work->kind], work,
                              stream->leaves, stream->num_leaves);
  if (work->kind == TASK_KERNEL)
    node->kernel_parameters = (CUDA_KERNEL_NODE_PARAMS){
        .func = work->kernel.function,
        .gridDimX = work->kernel.grid[0],
        .gridDimY = work->kernel.grid[1],
        .gridDimZ = work->kernel.grid[2],
        .blockDimX = work->kernel.block[0],
        .blockDimY = work->kernel.block[1],
        .blockDimZ = work->kernel.block[2],
        .sharedMemBytes = work->kernel.shared_bytes};
  stream->leaves = realloc(stream->leaves, sizeof *stream->leaves);
  stream->leaves[0] = node;
  stream->num_leaves = 1;
  return CUDA_SUCCESS;
}
API CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph,
                                         const CUgraphNode *before,
                                         const CUgraphEdgeData *edges,
                                         size_t num, CUstreamCaptureMode mode) {
  (void)edges, (void)mode;
  CUstream stream = stream_of(handle);
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  stream->capture = graph;
  stream->leaves = realloc(stream->leaves, (num + 1) * sizeof *before);
  if (num) memcpy(stream->leaves, before, num * sizeof *before);
  stream->num_leaves = num;
  return CUDA_SUCCESS;
}
API CUresult cuStreamBeginCapture_v2(CUstream stream,
                                     CUstreamCaptureMode mode) {
  CUgraph graph;
  cuGraphCreate(&graph, 0);
  return cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, mode);
}
API CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
  *graph = stream_of(handle)->capture;
  if (!*graph) return CUDA_ERROR_ILLEGAL_STATE;
  end_captures(*graph);
  return CUDA_SUCCESS;
}
API CUresult cuStreamIsCapturing(CUstream stream,
                                 CUstreamCaptureStatus *status) {
  *status = stream_of(stream)->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                       : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  static _Thread_local CUstreamCaptureMode now;
  CUstreamCaptureMode before = now;
  now = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}
